"""Runs ``digits.py``, a script that nobody wrote for Sentinel, as its owner would: alone or with the one added line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("digits.py")
PLACE = '        accelerator="cpu",\n'
FAULT = """
class Fault(pl.Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if {first} <= trainer.global_step <= {last} and not getattr(self, "is_over", False):
            batch[0].fill_(float("{value}"))
            self.is_over = trainer.global_step == {last}
"""


def run_script(
    folder: Path,
    environ: dict[str, str] | None = None,
    *,
    added: str = "SentinelCallback()",
    fault: tuple[int, int, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs the script in ``folder`` to its end.

    Args:
        folder: the working directory; Lightning and the agent write there.
        environ: variables besides those of this process, such as ``SENTINEL_URL``.
        added: what the owner added to the trainer's callbacks; nothing if empty.
        fault: the first and last step whose images are replaced, once, and the value in their place.
    """
    text = SCRIPT.read_text()
    callbacks = [added] if added else []
    if fault is not None:
        first, last, value = fault
        text = text.replace(
            "\n\nclass Classifier", FAULT.format(first=first, last=last, value=value) + "\n\nclass Classifier"
        )
        callbacks.insert(0, "Fault()")
    if added:
        text = text.replace(
            "import lightning.pytorch as pl\n",
            "import lightning.pytorch as pl\nfrom sentinel_agent import SentinelCallback\n",
        )
    text = text.replace(PLACE, f"{PLACE}        callbacks=[{', '.join(callbacks)}],\n")
    folder.mkdir(exist_ok=True)
    script = folder / "digits.py"
    script.write_text(text)
    return subprocess.run(
        [sys.executable, "-W", "ignore", script.name],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
    )
