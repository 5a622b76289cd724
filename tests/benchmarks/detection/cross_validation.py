"""Whether the detectors' constants hold on groups of runs that had no say in choosing them.

    SENTINEL_CORPUS=... python -m tests.benchmarks.detection.cross_validation

For each group of the corpus (the repository or team that made the runs) the constants below are chosen on all other
groups from some around the product's, and scored on that group alone.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from sentinel.cli.scan import tree
from sentinel.cli.scanning import scan
from sentinel.detectors import divergence, episode, loss_spike
from tests.benchmarks.detection.corpus import Run, corpus_path, load_runs, load_scorer, score
from tests.benchmarks.detection.intervals import poisson, wilson

GRID = {
    (loss_spike, "ALARM_Z"): (10.0, 12.0, 15.0),
    (divergence, "RISE_Z"): (6.0, 7.0, 8.0),
    (episode, "PATIENCE_ROWS"): (30, 36, 44),
}
Constants = tuple[float, ...]
Scores = dict[str, dict[str, Any]]
"""By run."""
RUNS: list[Run] = []
"""Loaded once, before the processes that share them start."""


def score_all(constants: Constants) -> Scores:
    """Scores of every run with these constants."""
    for (module, name), value in zip(GRID, constants, strict=True):
        setattr(module, name, value)
    corpus = corpus_path()
    assert corpus is not None
    scorer = load_scorer(corpus)

    def scanned(run: Run) -> dict[str, Any]:
        return tree(run.name, scan(run.reports))

    return {run.name: score(scorer, run, scanned) for run in RUNS}


def star(chosen: Constants) -> list[Constants]:
    """The product's constants, and each of them changed alone."""
    changed = {
        (*chosen[:place], value, *chosen[place + 1 :]) for place, values in enumerate(GRID.values()) for value in values
    }
    return sorted(changed | {chosen})


def worth(results: list[dict[str, Any]]) -> float:
    """What is to be as large as can be: finds and right acts against false ones."""
    events = [event for result in results for event in result["events"]]
    found = sum(event["found"] for event in events)
    acted = sum(event["acted"] for event in events if event["kind"] != "spike_recovered")
    return found + acted - sum(result["false_alarms"] + result["false_acts"] for result in results)


def summary(results: list[dict[str, Any]], *, decides: bool = True) -> str:
    """The figures in one paragraph; of a rule that decides nothing, only what it finds."""
    events = [event for result in results for event in result["events"]]
    harmful = [event for event in events if event["kind"] != "spike_recovered"]
    recovered = [event for event in events if event["kind"] == "spike_recovered"]
    found, harm = sum(event["found"] for event in events), sum(event["found"] for event in harmful)
    acted, left = sum(event["acted"] for event in harmful), sum(not event["acted"] for event in recovered)
    alarms, acts = (sum(result[name] for result in results) for name in ("false_alarms", "false_acts"))
    rows = sum(result["healthy_rows"] for result in results) / 1e4
    share = "{}/{} ({:.3f} to {:.3f})".format
    low, high = poisson(alarms)
    finds = [
        f"recall              {share(found, len(events), *wilson(found, len(events)))}",
        f"recall, harmful     {share(harm, len(harmful), *wilson(harm, len(harmful)))}",
        f"false alarms / 10k  {alarms / rows:.3f} ({low / rows:.3f} to {high / rows:.3f}), {alarms} in all",
    ]
    does = [
        f"harmful acted on    {share(acted, len(harmful), *wilson(acted, len(harmful)))}",
        f"recovered let be    {share(left, len(recovered), *wilson(left, len(recovered)))}",
        f"false rollbacks     {acts} ({poisson(acts)[0]:.1f} to {poisson(acts)[1]:.1f})",
    ]
    return "\n".join(finds + does if decides else finds)


def main() -> int:
    """Prints plain and cross-validated figures."""
    corpus = corpus_path()
    if corpus is None:
        print("SENTINEL_CORPUS names no corpus of labelled runs", file=sys.stderr)
        return 1
    chosen = tuple(getattr(module, name) for module, name in GRID)
    RUNS.extend(load_runs(corpus))
    grid = star(chosen)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        scores = dict(zip(grid, pool.map(score_all, grid), strict=True))
    by_group: dict[str, list[str]] = defaultdict(list)
    for run in RUNS:
        by_group[run.group].append(run.name)
    print(f"plain, {chosen}\n{summary(list(scores[chosen].values()))}\n")
    held_out = []
    for group, names in sorted(by_group.items()):
        others = {c: worth([r for name, r in results.items() if name not in names]) for c, results in scores.items()}
        best = max(others, key=lambda c: (others[c], c == chosen))
        held_out += [scores[best][name] for name in names]
        if best != chosen:
            print(f"without {group}: {best}")
    print(f"\nchosen without the group that is scored, {len(by_group)} groups\n{summary(held_out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
