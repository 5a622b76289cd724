"""What Sentinel costs and how fast it is, in one table: ``make bench``.

    python -m tests.benchmarks.measure [--quick] [--only PART ...] [--json FILE] [--mlflow-python PYTHON]

It takes some eight minutes on two cores; nothing else should run on them.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.benchmarks import ingest, loop_cost, recovery, rollback_latency
from tests.benchmarks.rows import Row

PARTS: Final[dict[str, Callable[[argparse.Namespace], Iterator[Row]]]] = {
    "ingest": lambda given: ingest.measure(share=0.1 if given.quick else 1.0, mlflow_python=given.mlflow_python),
    "rollback": lambda given: rollback_latency.measure(runs=20 if given.quick else 200),
    "recovery": lambda given: recovery.measure(rollbacks=2 if given.quick else 10),
    "step": lambda given: loop_cost.measure(
        rounds=2 if given.quick else 12,
        tiny_steps=200 if given.quick else 1500,
        laptop_steps=10 if given.quick else 60,
    ),
}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repetitions: does it run, not how fast")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="some parts of it")
    parser.add_argument("--json", type=Path, help="write the numbers to this file too")
    parser.add_argument("--mlflow-python", default=sys.executable, help="an interpreter that has MLflow")
    given = parser.parse_args()
    logging.getLogger("lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")  # Lightning's advice on loggers and workers
    console, progress = Console(), Console(stderr=True)
    table = Table("part", "", "measured", "target")
    rows: list[Row] = []
    for part in given.only:
        began = time.monotonic()
        with progress.status(f"measuring: {part}"):
            found = list(PARTS[part](given))
        progress.print(f"{part}: {time.monotonic() - began:.0f} s", highlight=False)
        rows += found
        for place, row in enumerate(found):
            table.add_row(row.part, row.what, row.figure, row.target, end_section=place == len(found) - 1)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    console.print(machine, highlight=False)
    console.print(table)
    if given.json is not None:
        given.json.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
