"""What the daemon tells Prometheus: one table of all metrics, and the numbers behind it.

What carries the label ``run`` is made anew at each scrape from the runs heard of lately, so that a run that is over
leaves no series behind.
"""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sentinel import clock
from sentinel.domain.checkpoints import Checkpoint
from sentinel.domain.decisions import Outcome as Chosen
from sentinel.domain.decisions import Rung
from sentinel.domain.findings import SEVERITIES, Severity
from sentinel.domain.log_entry import LogEntry
from sentinel.domain.runs import Run
from sentinel.pipeline.outcome import Outcome
from sentinel.protocol.ids import IncidentId, RunId
from sentinel.shown_run import ShownRun

RUNS_SHOWN: Final = 200
"""A daemon serves a site: beyond this the runs that were not heard of for longest are left out."""
RUN_SHOWN_S: Final = 3600.0
"""After its last word: long enough for a scrape to see how it ended."""
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the table."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


TABLE: Final = (
    Metric("sentinel_observations_total", "counter", "Observations taken into the log.", ("kind",)),
    Metric("sentinel_backlog_observations_total", "counter", "Of these, such as had waited for the daemon."),
    Metric("sentinel_findings_total", "counter", "What detectors claimed, ends apart.", ("symptom", "severity")),
    Metric("sentinel_incidents_total", "counter", "Incidents, as severe as they began.", ("severity",)),
    Metric("sentinel_decisions_total", "counter", "Decisions, doing nothing included.", ("rung", "outcome")),
    Metric("sentinel_alerts_total", "counter", "Alerts tried on a channel.", ("channel", "outcome")),
    Metric("sentinel_detector_errors_total", "counter", "Bugs: a detector raised.", ("detector",)),
    Metric("sentinel_scheduler_errors_total", "counter", "Jobs of the daemon that failed.", ("task",)),
    Metric("sentinel_commit_seconds", "histogram", "One transaction of the writer, work and disk."),
    Metric("sentinel_ingest_seconds", "histogram", "From a batch's last byte to its answer."),
    Metric("sentinel_writer_waiting", "gauge", "Jobs that wait for the writer's next transaction."),
    Metric("sentinel_on_duty", "gauge", "1 if this daemon writes, 0 if it stands by."),
    Metric("sentinel_incidents_open", "gauge", "Incidents that are not resolved.", ("run", "severity")),
    Metric("sentinel_rollbacks_total", "counter", "Rollbacks that a trainer carried out.", ("run",)),
    Metric("sentinel_run_findings_total", "counter", "What detectors claimed, ends apart.", ("run", "severity")),
    Metric("sentinel_run_lost_steps_total", "counter", "Steps given up by going back to a checkpoint.", ("run",)),
    Metric("sentinel_run_dropped_observations_total", "counter", "Observations that its agents threw away.", ("run",)),
    Metric("sentinel_run_agent_errors_total", "counter", "Errors that its agents kept from the training.", ("run",)),
    Metric("sentinel_run_step", "gauge", "Newest optimizer step.", ("run",)),
    Metric("sentinel_run_max_steps", "gauge", "The step at which the training is to end.", ("run",)),
    Metric(
        "sentinel_run_checkpoint_step", "gauge", "Step of the newest checkpoint: saved, known_good.", ("run", "state")
    ),
    Metric("sentinel_run_segment", "gauge", "Rollbacks within the attempt so far.", ("run",)),
    Metric("sentinel_run_phase", "gauge", "1 for the phase that the run is in.", ("run", "phase")),
    Metric("sentinel_run_node", "gauge", "1 for each node on which its attempt trains.", ("run", "node")),
    Metric("sentinel_run_mode", "gauge", "1 for the mode that its agent allows.", ("run", "mode")),
    Metric("sentinel_run_held", "gauge", "1 while a person holds the run: nothing is done to it.", ("run",)),
    Metric("sentinel_run_loss", "gauge", "Loss of the newest step.", ("run",)),
    Metric("sentinel_run_grad_norm", "gauge", "Gradient norm of the newest step, before clipping.", ("run",)),
    Metric("sentinel_run_learning_rate", "gauge", "Learning rate of the newest step.", ("run",)),
    Metric("sentinel_run_step_seconds", "gauge", "Duration of the newest step.", ("run",)),
    Metric("sentinel_run_data_wait_seconds", "gauge", "Of this, waiting for data.", ("run",)),
    Metric("sentinel_run_tokens_per_second", "gauge", "Tokens of the newest step over its duration.", ("run",)),
)
_BY_NAME: Final = {metric.name: metric for metric in TABLE}
_OF_RUNS: Final = tuple(metric for metric in TABLE if "run" in metric.labels)


class Metrics(Collector):
    """The daemon's metrics, in a registry of their own.

    Args:
        registry: where they are registered.
        now: monotonic seconds.
    """

    def __init__(self, registry: CollectorRegistry, now: Callable[[], float] = clock.monotonic) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series beside each counter tells only when the daemon started
        self.registry = registry
        self._now = now
        self._lock = threading.Lock()
        self._shown: dict[RunId, ShownRun] = {}
        self._open: dict[IncidentId, tuple[RunId, Severity]] = {}
        self._observations = self._counter("sentinel_observations_total")
        self._backlog = self._counter("sentinel_backlog_observations_total")
        self._findings = self._counter("sentinel_findings_total")
        self._incidents = self._counter("sentinel_incidents_total")
        self._decisions = self._counter("sentinel_decisions_total")
        self._alerts = self._counter("sentinel_alerts_total")
        self._detector_errors = self._counter("sentinel_detector_errors_total")
        self._scheduler_errors = self._counter("sentinel_scheduler_errors_total")
        self.commit_seconds = self._histogram("sentinel_commit_seconds")
        self.ingest_seconds = self._histogram("sentinel_ingest_seconds")
        self.writer_waiting = self._gauge("sentinel_writer_waiting")
        self.on_duty = self._gauge("sentinel_on_duty")
        for severity in SEVERITIES:
            self._incidents.labels(severity)
        for rung, outcome in product(get_args(Rung), get_args(Chosen)):
            self._decisions.labels(rung, outcome)
        registry.register(self)
        ProcessCollector(registry=registry)

    def committed(
        self,
        run: RunId,
        standing: Run,
        advanced: Iterable[tuple[LogEntry, Outcome]],
        checkpoints: Sequence[Checkpoint] = (),
    ) -> None:
        """Counts entries of a run that are durable, with what they led to; its checkpoints come newest step first."""
        with self._lock:
            for entry, outcome in advanced:
                self._count(entry, outcome)
                self._show(run, standing, entry, outcome)
            if run in self._shown:
                self._shown[run].checkpoints = checkpoints

    def know_open(self, incident: IncidentId, run: RunId, severity: Severity) -> None:
        """Takes up an incident that was open before the daemon started."""
        with self._lock:
            self._open[incident] = (run, severity)

    def know_channel(self, channel: str) -> None:
        """Shows a channel before its first alert: a counter that begins with its first failure never rises."""
        for outcome in ("sent", "failed"):
            self._alerts.labels(channel, outcome)

    def alert_tried(self, channel: str, outcome: str) -> None:
        """Counts one try of an alert."""
        self._alerts.labels(channel, outcome).inc()

    def job_failed(self, job: str) -> None:
        """Counts a failed job."""
        self._scheduler_errors.labels(job).inc()

    def describe(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        """The metrics about runs, without values."""
        return [_family(metric) for metric in _OF_RUNS]

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """The metrics about runs, as they are now."""
        with self._lock:
            self._forget()
            shown = list(self._shown.items())
            opened = Tally(self._open.values())
        families = {metric.name: _family(metric) for metric in _OF_RUNS}
        for (run, severity), count in opened.items():
            families["sentinel_incidents_open"].add_metric((run, severity), count)
        for run, each in shown:
            for name, labels, value in each.samples():
                families[name].add_metric((run, *labels), value)
        return list(families.values())

    def _count(self, entry: LogEntry, outcome: Outcome) -> None:
        self._observations.labels(entry.observation.kind).inc()
        if entry.backlog:
            self._backlog.inc()
        for finding in outcome.findings:
            if finding.phase != "ended":
                self._findings.labels(finding.symptom, finding.severity).inc()
        for decision in outcome.decisions:
            self._decisions.labels(decision.rung, decision.outcome).inc()
        for detector in outcome.raised:
            self._detector_errors.labels(detector).inc()
        for incident in outcome.incidents:
            if incident.opened_sequence == entry.sequence and incident.id not in self._open:
                self._incidents.labels(incident.severity).inc()
            if incident.is_open:
                self._open[incident.id] = (entry.run, incident.severity)
            else:
                self._open.pop(incident.id, None)

    def _show(self, run: RunId, standing: Run, entry: LogEntry, outcome: Outcome) -> None:
        if not entry.attempt and run not in self._shown:
            return  # the daemon's own words do not bring a run back that is over
        shown = self._shown.setdefault(run, ShownRun(self._now()))
        if entry.attempt:
            shown.heard_at = self._now()
        shown.standing = standing
        shown.take(entry, outcome)

    def _forget(self) -> None:
        oldest_first = sorted(self._shown, key=lambda run: self._shown[run].heard_at)
        for place, run in enumerate(oldest_first):
            spare = place < len(oldest_first) - RUNS_SHOWN
            if spare or self._now() - self._shown[run].heard_at > RUN_SHOWN_S:
                del self._shown[run]

    def _counter(self, name: str) -> Counter:
        metric = _BY_NAME[name]
        return Counter(metric.name, metric.help, metric.labels, registry=self.registry)

    def _gauge(self, name: str) -> Gauge:
        metric = _BY_NAME[name]
        return Gauge(metric.name, metric.help, registry=self.registry)

    def _histogram(self, name: str) -> Histogram:
        metric = _BY_NAME[name]
        return Histogram(metric.name, metric.help, metric.labels, registry=self.registry, buckets=SECONDS)


def _family(metric: Metric) -> GaugeMetricFamily | CounterMetricFamily:
    family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return family(metric.name, metric.help, labels=metric.labels)
