"""Follows a run over the REST API and says what happens, as it happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.status import Status

from sentinel.client import Client

RECENT_STEPS: Final = 20
_COLOURS: Final = {
    "rollback": "magenta",
    "restart": "magenta",
    "escalate": "bold red",
    "watch": "yellow",
    "none": "green",
}


@dataclass(slots=True)
class Watching:
    """What was narrated already, of one run."""

    client: Client
    run: str
    console: Console
    findings_seen: int = 0
    decisions_seen: int = 0
    faults_seen: int = 0
    said_at_step: int = 0

    def look(self, faults: list[dict[str, Any]], status: Status) -> None:
        """Narrates what is new: faults as the trainer injects them, findings, decisions, and where the run stands."""
        for fault in faults[self.faults_seen :]:
            self.console.print(f"[red]  fault[/]     {fault['kind']} injected at step {fault['step']}", highlight=False)
        self.faults_seen = len(faults)
        known = {run["run"] for run in self.client.get("/v1/runs")["runs"]}
        if self.run not in known:
            status.update("waiting for the trainer's first report")
            return
        self._news()
        status.update(self._standing())

    def _news(self) -> None:
        path = f"/v1/runs/{self.run}"
        findings = self.client.get(f"{path}/findings", after=self.findings_seen)["findings"]
        decisions = self.client.get(f"{path}/decisions", after=self.decisions_seen)["decisions"]
        news = [(each["sequence"], 0, self._finding(each)) for each in findings]
        news += [(each["sequence"], 1, self._decision(each)) for each in decisions]
        for _, _, text in sorted(news):
            self.console.print(text, highlight=False)
        self.findings_seen = max([self.findings_seen, *(each["sequence"] for each in findings)])
        self.decisions_seen = max([self.decisions_seen, *(each["sequence"] for each in decisions)])

    def _standing(self) -> str:
        run = self.client.get(f"/v1/runs/{self.run}")
        step = run["step"]
        text = f"step {step}  loss {_shown(run.get('loss'))}  segment {run['segment']}"
        speed = self._tokens_per_s(step)
        if speed is not None:
            text += f"  {speed:,.0f} tokens/s"
        if not self.console.is_terminal and step // 100 != self.said_at_step // 100:
            self.console.print(f"  {text}", highlight=False, style="dim")
            self.said_at_step = step
        return text

    def _tokens_per_s(self, step: int) -> float | None:
        series = self.client.get(
            f"/v1/runs/{self.run}/series", names="tokens,step_s", first_step=max(0, step - RECENT_STEPS), last_step=step
        )["series"]
        tokens, seconds = (sum(_means(series.get(name, ()))) for name in ("tokens", "step_s"))
        return tokens / seconds if seconds else None

    @staticmethod
    def _finding(finding: dict[str, Any]) -> str:
        return (
            f"[cyan]  finding[/]   {finding['symptom']} {finding['phase']}, {finding['verdict']}: {finding['reason']}"
        )

    @staticmethod
    def _decision(decision: dict[str, Any]) -> str:
        colour = _COLOURS[decision["rung"]]
        target = (
            f" {'from' if decision['rung'] == 'restart' else 'to'} step {decision['target_step']}"
            if decision.get("target_step") is not None
            else ""
        )
        done = f"{decision['rung']}{target} ({decision['outcome']})"
        return f"[{colour}]  decision[/]  {decision['change']}: [{colour}]{done}[/]; {decision['reason']}"


def _shown(loss: float | str | None) -> str:
    return "-" if loss is None else f"{loss:.4g}" if isinstance(loss, float) else loss


def _means(points: Any) -> list[float]:
    return [point["mean"] for point in points if isinstance(point["mean"], int | float)]
