"""The detectors on labelled runs of others, where the corpus is."""

from __future__ import annotations

import pytest

from sentinel.cli.scan import tree
from sentinel.cli.scanning import scan
from tests.benchmarks.detection.corpus import CORPUS, corpus_path, load_runs, load_scorer, score


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_real_runs_are_judged_as_promised() -> None:
    """Recall, false alarms, rollbacks and patience on the labelled runs stay within the figures of the README."""
    corpus = corpus_path()
    if corpus is None:
        pytest.skip(f"{CORPUS} names no corpus: it holds others' logs and is not part of the project")
    scorer = load_scorer(corpus)
    results = [score(scorer, run, lambda each: tree(each.name, scan(each.reports))) for run in load_runs(corpus)]
    events = [event for result in results for event in result["events"]]
    harmful = [event for event in events if event["kind"] != "spike_recovered"]
    recovered = [event for event in events if event["kind"] == "spike_recovered"]
    rows = sum(result["healthy_rows"] for result in results)
    assert sum(event["found"] for event in events) >= 0.95 * len(events)
    assert sum(event["found"] for event in harmful) >= 0.98 * len(harmful)
    assert sum(result["false_alarms"] for result in results) <= 0.3 * rows / 1e4
    assert sum(result["false_acts"] for result in results) <= 3
    assert sum(not event["acted"] for event in recovered) >= 0.9 * len(recovered)
    assert sum(event["acted"] for event in harmful) >= 11 / 12 * len(harmful)
