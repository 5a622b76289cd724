"""Sentinel's detectors beside the public rules, in one table.

    python -m tests.benchmarks.detection.table [--synthetic] [--peers]

(a) twelve synthetic curves, ten seeds each; (b) the labelled corpus of real runs, where SENTINEL_CORPUS names it.
Without --peers only Sentinel is run. It needs torch, lightning and river for the peers.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from sentinel.cli.scan import tree
from sentinel.cli.scanning import scan
from sentinel.protocol.observations import StepReport
from tests.benchmarks.detection.corpus import Run, corpus_path, load_runs, load_scorer, score
from tests.benchmarks.detection.cross_validation import summary
from tests.benchmarks.detection.peers import RULES, Rule
from tests.benchmarks.detection.synthetic import BY, CLEAN, FAULT_AT, FAULTS, LATER, STEPS, curve

SEEDS = 10
MERGE_ROWS = 20
"""Alarms of a rule this close together are one, as findings of one incident are."""

Alarms = Callable[[Sequence[float]], Sequence[int]]
"""From losses to the rows of alarms."""


def sentinel_alarms(losses: Sequence[float]) -> Sequence[int]:
    """Rows of findings of any severity."""
    result = scan([StepReport(at=float(row), step=row + 1, loss=loss) for row, loss in enumerate(losses)])
    return [each.step - 1 for each in result.findings if each.phase == "began"]


def merged(rule: Rule) -> Alarms:
    """A rule with alarms within 20 rows of one another told once."""

    def alarms(losses: Sequence[float]) -> Sequence[int]:
        rows: list[int] = []
        last = -math.inf
        for row in rule(losses):
            if row - last > MERGE_ROWS:
                rows.append(row)
            last = row
        return rows

    return alarms


def synthetic_row(case: str, alarms: Alarms) -> str:
    """False alarms per 10,000 clean steps, or how many of ten seeds are found and how many steps later."""
    if case in CLEAN:
        count = sum(len(alarms(curve(case, seed))) for seed in range(SEEDS))
        return f"{count / (SEEDS * STEPS) * 1e4:.2f}"
    first, by = FAULT_AT + LATER.get(case, 0), BY.get(case, 2000)
    delays = []
    for seed in range(SEEDS):
        after = [row - first for row in alarms(curve(case, seed)) if first <= row < first + by]
        delays += after[:1]
    return f"{len(delays)}/{SEEDS}" + (f" +{median(delays):.0f}" if delays else "")


def corpus_row(scorer: Any, run: Run, alarms: Alarms) -> dict[str, Any]:
    """The scorer's counts for one run and one rule; rows without a loss are passed over."""
    told = [(report.step, report.loss) for report in run.reports if report.loss is not None]
    rows = alarms([loss for _, loss in told])

    def scanned(_: Run) -> Mapping[str, Any]:
        return {
            "incidents": [{"severity": "warning", "detected_step": told[row][0]} for row in rows],
            "decisions": [],
        }

    return score(scorer, run, scanned)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--synthetic", action="store_true", help="leave out the corpus")
    parser.add_argument("--peers", action="store_true", help="run the public rules too")
    arguments = parser.parse_args()
    rules: dict[str, Alarms] = {"Sentinel": sentinel_alarms}
    if arguments.peers:
        rules |= {name: merged(rule) for name, rule in RULES.items()}
    print(f"| case | {' | '.join(rules)} |\n|---|{'---|' * len(rules)}")
    for case in (*CLEAN, *FAULTS):
        cells = [synthetic_row(case, alarms) for alarms in rules.values()]
        print(f"| {case}{', false / 10k' if case in CLEAN else ''} | {' | '.join(cells)} |", flush=True)
    corpus = corpus_path()
    if arguments.synthetic or corpus is None:
        return
    scorer, runs = load_scorer(corpus), load_runs(corpus)
    print(f"\nreal runs: {len(runs)}")
    for name, alarms in rules.items():
        if name == "Sentinel":
            results = [score(scorer, run, lambda each: tree(each.name, scan(each.reports))) for run in runs]
        else:
            results = [corpus_row(scorer, run, alarms) for run in runs]
        print(f"\n{name}\n{summary(results, decides=name == 'Sentinel')}", flush=True)


if __name__ == "__main__":
    main()
