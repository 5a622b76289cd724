from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sentinel.domain.runs import Run
from sentinel.metrics import RUN_SHOWN_S, RUNS_SHOWN, TABLE, Metrics
from sentinel.pipeline.outcome import Outcome
from sentinel.protocol.ids import IncidentId, RunId
from sentinel.protocol.observations import AttemptEnded, OperatorRequest, StepReport, Tick
from tests.builders import RUN, Story, entry


@dataclass
class Watched:
    """Metrics with a clock of the test's own."""

    at: float = 0.0
    metrics: Metrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(CollectorRegistry(), now=lambda: self.at)

    def follow(self, story: Story, start: int = 0) -> None:
        """Shows the metrics what a story told and led to."""
        pairs = list(zip(story.entries, story.outcomes, strict=True))[start:]
        self.metrics.committed(RUN, story.pipeline.run, pairs, story.pipeline.checkpoints)

    def samples(self) -> dict[tuple[str, ...], float]:
        """Every sample by its name and the values of its labels."""
        text = generate_latest(self.metrics.registry).decode()
        return {
            (sample.name, *(sample.labels[label] for label in sorted(sample.labels))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def runs(self) -> set[str]:
        """Runs that have a step."""
        return {key[1] for key in self.samples() if key[0] == "sentinel_run_step"}


@pytest.fixture
def watched() -> Watched:
    """Metrics in a registry of their own."""
    return Watched()


def test_the_registry_holds_what_the_table_says(watched: Watched) -> None:
    """Names, kinds, help texts and labels of all metrics are those of the table, and there are no others of ours."""
    story = Story()
    story.steps(80)
    story.steps(1, loss=math.nan, grad_norm=math.nan)
    watched.follow(story)
    watched.metrics.alert_tried("log", "sent")
    watched.metrics.job_failed("ticks")
    families = {
        family.name: family
        for family in text_string_to_metric_families(generate_latest(watched.metrics.registry).decode())
        if family.name.startswith("sentinel_")
    }
    assert set(families) == {metric.name.removesuffix("_total") for metric in TABLE}
    for metric in TABLE:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert not family.samples or labels == set(metric.labels), metric.name


def test_a_fault_and_its_rollback_are_counted(watched: Watched) -> None:
    """Findings, decisions, rollbacks and the open incident follow what was committed."""
    story = Story()
    story.steps(20)
    story.checkpoint("good")
    story.steps(60)
    fault = story.steps(1, loss=math.nan, grad_norm=math.nan)
    watched.follow(story)
    samples = watched.samples()
    assert samples["sentinel_observations_total", "step"] == 81
    assert samples["sentinel_findings_total", "critical", "nonfinite"] == 1
    assert samples["sentinel_decisions_total", "ordered", "rollback"] == 1
    assert samples["sentinel_incidents_total", "critical"] == 1
    assert samples["sentinel_incidents_open", RUN, "critical"] == 1
    assert samples["sentinel_rollbacks_total", RUN] == 0
    assert math.isnan(samples["sentinel_run_loss", RUN])
    told = len(story.entries)
    (order,) = (action for action in fault.actions if action.executor == "trainer_command")
    story.roll_back(order.id, 20)
    story.steps(60)
    watched.follow(story, told)
    samples = watched.samples()
    assert samples["sentinel_rollbacks_total", RUN] == 1
    assert samples["sentinel_incidents_total", "critical"] == 1
    assert samples["sentinel_run_segment", RUN] == 1
    assert ("sentinel_incidents_open", RUN, "critical") not in samples


def test_a_live_run_shows_its_newest_step(watched: Watched) -> None:
    """The gauges of a run are the numbers of its last report; tokens a second are tokens over the step's duration."""
    story = Story()
    story.tell(StepReport(at=0.0, step=1, loss=2.5, grad_norm=0.5, lr=1e-3, step_s=0.25, tokens=1024))
    watched.follow(story)
    samples = watched.samples()
    assert samples["sentinel_run_step", RUN] == 1
    assert samples["sentinel_run_loss", RUN] == 2.5
    assert samples["sentinel_run_grad_norm", RUN] == 0.5
    assert samples["sentinel_run_learning_rate", RUN] == 1e-3
    assert samples["sentinel_run_step_seconds", RUN] == 0.25
    assert samples["sentinel_run_tokens_per_second", RUN] == 4096
    assert samples["sentinel_run_phase", "training", RUN] == 1


def test_what_was_not_reported_has_no_series(watched: Watched) -> None:
    """A run without learning rate or durations shows none, not zero."""
    story = Story()
    story.steps(1)
    watched.follow(story)
    shown = {key[0] for key in watched.samples() if RUN in key}
    assert "sentinel_run_loss" in shown
    assert not {"sentinel_run_learning_rate", "sentinel_run_step_seconds", "sentinel_run_tokens_per_second"} & shown


def test_a_run_leaves_no_series_behind(watched: Watched) -> None:
    """How a run ended is shown for an hour after its last word; the daemon's own words do not prolong that."""
    story = Story()
    story.steps(5)
    story.tell(AttemptEnded(at=0.0, outcome="finished", step=5))
    watched.follow(story)
    watched.at = RUN_SHOWN_S
    assert watched.samples()["sentinel_run_phase", "finished", RUN] == 1
    tick = entry(Tick(at=0.0, silent_s=5.0), 99, attempt="")
    watched.metrics.committed(RUN, story.pipeline.run, [(tick, Outcome())])
    watched.at += 1
    assert watched.runs() == set()
    watched.metrics.committed(RUN, story.pipeline.run, [(tick, Outcome())])
    assert watched.runs() == set()


def test_the_newest_runs_are_shown_and_no_more(watched: Watched) -> None:
    """A site with very many runs shows those heard of last."""
    report = entry(StepReport(at=0.0, step=1), 1)
    for number in range(RUNS_SHOWN + 5):
        watched.at = float(number)
        watched.metrics.committed(RunId(f"run-{number}"), Run(), [(report, Outcome())])
    assert watched.runs() == {f"run-{number}" for number in range(5, RUNS_SHOWN + 5)}


def test_an_incident_that_was_open_before_the_start_is_known(watched: Watched) -> None:
    """Open incidents of a daemon before this one are counted until they are settled."""
    story = Story()
    story.steps(80)
    fault = story.steps(1, loss=math.nan, grad_norm=math.nan)
    incident = fault.incidents[-1]
    watched.metrics.know_open(incident.id, RUN, incident.severity)
    watched.metrics.know_open(IncidentId("other.i1"), RunId("other"), "warning")
    assert watched.samples()["sentinel_incidents_open", RUN, "critical"] == 1
    told = len(story.entries)
    story.tell(OperatorRequest(at=0.0, request="resolve", incident=incident.id), attempt="")
    watched.follow(story, told)
    assert {key[1] for key in watched.samples() if key[0] == "sentinel_incidents_open"} == {"other"}


def test_what_may_happen_is_counted_from_zero(watched: Watched) -> None:
    """A series that begins with its first event would never be seen to rise."""
    watched.metrics.know_channel("webhook")
    samples = watched.samples()
    assert samples["sentinel_incidents_total", "critical"] == 0
    assert samples["sentinel_decisions_total", "withheld", "rollback"] == 0
    assert samples["sentinel_alerts_total", "webhook", "failed"] == 0


def test_a_detector_with_a_bug_is_counted(watched: Watched) -> None:
    """What the pipeline says has raised is a counter by detector; history is counted apart."""
    outcome = Outcome(raised=["loss_spike"])
    watched.metrics.committed(RUN, Run(), [(entry(StepReport(at=0.0, step=1), 1, backlog=True), outcome)])
    samples = watched.samples()
    assert samples["sentinel_detector_errors_total", "loss_spike"] == 1
    assert samples["sentinel_backlog_observations_total",] == 1
