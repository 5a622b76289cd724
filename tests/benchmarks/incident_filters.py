"""How long a page of incidents takes, by filter: python -m tests.benchmarks.incident_filters 100000."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from sentinel import clock
from sentinel.domain.incidents import Incident
from sentinel.pipeline.outcome import Outcome
from sentinel.protocol.ids import IncidentId, RunId
from sentinel.protocol.observations import Tick
from sentinel.store import decision_log
from sentinel.store.decision_log import IncidentFilter
from sentinel.store.session import Database, migrate, open_database
from tests.builders import entry

PAGE = 101
SYMPTOMS = ("nonfinite", "loss_spike", "hang", "straggler", "throughput_drop")
FILTERS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "run": {"run": RunId("run-1")},
    "state": {"state": "open"},
    "node": {"wanted": IncidentFilter(node="node-7")},
    "a frequent symptom": {"wanted": IncidentFilter(symptom="hang")},
    "a symptom that none has": {"wanted": IncidentFilter(symptom="absent")},
    "a day of a rare severity": {"wanted": IncidentFilter(severity="critical", first_at=1000.0, until_at=2000.0)},
    "the last page": {"before": (50.0, "")},
}


def fill(database: Database, count: int) -> None:
    """So many incidents of 100 nodes, 5 symptoms and two severities, one of them rare."""
    for first in range(0, count, 5000):
        outcome = Outcome()
        outcome.incidents += [_incident(number) for number in range(first, first + 5000)]
        with database.transaction() as connection:
            decision_log.put_outcome(connection, entry(Tick(at=0.0, silent_s=5.0), first + 1), outcome)


def _incident(number: int) -> Incident:
    symptom = SYMPTOMS[number % len(SYMPTOMS)]
    return Incident(
        id=IncidentId(f"run-1.i{number}"),
        symptom=symptom,
        symptoms=(symptom,),
        subject="run",
        severity="critical" if number % 1000 == 0 else "warning",
        verdict="undecided",
        state="resolved" if number % 100 else "open",
        segment=0,
        onset_step=number,
        suspect_from=number,
        detected_step=number,
        detected_at=float(number),
        opened_sequence=number,
        changed_sequence=number,
        reason="seen",
        node=f"node-{number % 100}",
    )


def main() -> None:
    """Prints the median of nine reads for each filter."""
    count = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(f"sqlite:///{Path(folder) / 'sentinel.db'}")
        migrate(database)
        fill(database, count)
        for name, given in FILTERS.items():
            taken = []
            for _ in range(9):
                began = clock.monotonic()
                with database.reading() as connection:
                    decision_log.incident_documents(connection, limit=PAGE, **given)
                taken.append(clock.monotonic() - began)
            print(f"{name}: {1000 * median(taken):.1f} ms")
        database.close()


if __name__ == "__main__":
    main()
