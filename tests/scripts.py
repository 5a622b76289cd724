"""Runs the scripts of ``examples`` as their owners would: as they are, without the agent, or with a NaN in a step."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

EXAMPLES = Path(__file__).with_name("examples")


def run_example(
    name: str,
    folder: Path,
    changes: Mapping[str, str],
    environ: Mapping[str, str] | None = None,
    *,
    processes: int = 1,
) -> subprocess.CompletedProcess[str]:
    """Runs a script in ``folder`` to its end.

    Args:
        name: of the file.
        folder: the working directory; made if it is not there.
        changes: pieces of its text, each there once, and what stands in their place.
        environ: variables besides those of this process, such as ``SENTINEL_URL``.
        processes: more than one are started with torchrun.
    """
    text = (EXAMPLES / name).read_text()
    for before, after in changes.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return subprocess.run(
        [sys.executable, "-W", "ignore", *(torchrun if processes > 1 else []), name],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
    )
