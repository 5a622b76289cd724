"""Real faults in the reference trainer, over seeds, judged by ``sentinel scan`` from its step log alone.

python -m tests.benchmarks.detection.trainer_faults [SEEDS]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from sentinel.cli.scanning import Scan, scan
from sentinel.readers.sniffing import read_log

STEPS = 400
ONSET = 251
FAULTS = {"none": None, "corrupt_data": "corrupt_data@250:16", "nan": "nan@250"}
AT_ONCE = 2


def train(folder: Path, kind: str, seed: int) -> Scan:
    """One run, scanned."""
    log = folder / f"{kind}-{seed}.jsonl"
    command = [sys.executable, "-m", "sentinel_reference.train", "--mode", "off", "--quiet"]
    command += ["--seed", str(seed), "--max-steps", str(STEPS), "--root", str(folder / f"{kind}-{seed}")]
    command += ["--step-log", str(log)]
    fault = FAULTS[kind]
    subprocess.run(command + (["--fault", fault] if fault else []), check=True, capture_output=True)
    return scan(read_log(log))


def row(kind: str, scans: list[Scan]) -> str:
    """One line of the table."""
    incidents = [[each for each in one.incidents.values() if each.severity != "info"] for one in scans]
    acts = [[each.step for each in one.decisions if each.action not in ("none", "watch")] for one in scans]
    if kind == "none":
        return f"| none | {sum(map(len, incidents))} false alarms | {sum(map(len, acts))} false acts |"
    found = [each[0].detected_step - ONSET for each in incidents if each]
    acted = [each[0] - ONSET for each in acts if each]
    return (
        f"| {kind} | {len(found)}/{len(scans)}, median +{median(found):g} steps "
        f"| {len(acted)}/{len(scans)}, median +{median(acted):g} steps |"
    )


def main(seeds: int) -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(AT_ONCE) as pool:
        print("| fault | found | acted on |\n|---|---|---|")
        for kind in FAULTS:
            scans = list(pool.map(lambda seed, kind=kind: train(Path(name), kind, seed), range(seeds)))
            print(row(kind, scans), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
