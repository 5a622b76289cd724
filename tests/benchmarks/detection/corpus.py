"""The labelled corpus of real runs, where there is one, and its scorer."""

from __future__ import annotations

import csv
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentinel.protocol.observations import StepReport
from sentinel.readers.sniffing import read_log

CORPUS = "SENTINEL_CORPUS"
"""Names the folder with runs/, labels.csv and split.csv; score_scan.py lies beside it. None of it is in the project."""


@dataclass(frozen=True)
class Run:
    """A recorded run, its labels, and who made it."""

    name: str
    group: str
    steps: Sequence[float]
    reports: Sequence[StepReport]
    labels: Sequence[Mapping[str, str]]


def corpus_path() -> Path | None:
    """Where the corpus is; None where there is none."""
    path = os.environ.get(CORPUS)
    return Path(path) if path and (Path(path) / "labels.csv").exists() else None


def load_scorer(corpus: Path) -> Any:
    """The module score_scan, from beside the corpus."""
    spec = importlib.util.spec_from_file_location("score_scan", corpus.parent / "score_scan.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_runs(corpus: Path, split: str = "dev") -> list[Run]:
    """All runs of one split."""
    scorer = load_scorer(corpus)
    labels = scorer.read_labels(corpus)
    with (corpus / "split.csv").open(newline="") as handle:
        groups = {Path(row["file"]).name: row["group"] for row in csv.DictReader(handle) if row["split"] == split}
    runs = []
    for path in sorted((corpus / "runs").glob("*.csv")):
        if path.name in groups:
            steps = scorer.read_rows(path)
            runs.append(Run(path.name, groups[path.name], steps, read_log(path), labels.get(path.name, [])))
    return runs


def score(scorer: Any, run: Run, scan: Callable[[Run], Mapping[str, Any]]) -> dict[str, Any]:
    """The scorer's counts for one run."""
    result: dict[str, Any] = scorer.score_file(run.steps, run.labels, scan(run))
    return result
