"""An example of every request and answer, for /openapi.json; a test holds them against the classes they are of."""

from __future__ import annotations

from typing import Any, Final

_RUN: Final = {
    "run": "llm-7b",
    "created_at": 1795000000.0,
    "sequence": 8123,
    "open_incidents": 1,
    "attempt": "20261121T140000-3f2a",
    "attempts": 1,
    "segment": 0,
    "step": 8001,
    "phase": "training",
    "mode": "act",
    "precision": "bf16-mixed",
    "rollback": "forward",
    "rollback_reason": "the loader keeps no position: the batches since the checkpoint are skipped",
    "max_steps": 100000,
    "loss": "NaN",
    "host": "node-7",
    "began_at": 1795000000.0,
    "last_at": 1795003600.5,
}
_INCIDENT: Final = {
    "run": "llm-7b",
    "id": "llm-7b.i8120",
    "symptom": "nonfinite",
    "symptoms": ["nonfinite"],
    "subject": "run",
    "severity": "critical",
    "verdict": "malignant",
    "state": "mitigating",
    "segment": 0,
    "onset_step": 8001,
    "suspect_from": 8001,
    "detected_step": 8001,
    "detected_at": 1795003600.5,
    "opened_sequence": 8120,
    "changed_sequence": 8120,
    "reason": "loss is nan at step 8001",
    "open_symptoms": ["nonfinite"],
    "rollbacks": 0,
    "lost_steps": 0,
    "lost_s": 0.0,
}
_DECISION: Final = {
    "run": "llm-7b",
    "id": "llm-7b.d8120.0",
    "incident": "llm-7b.i8120",
    "sequence": 8120,
    "at": 1795003600.5,
    "step": 8001,
    "change": "opened",
    "rule": "poisoned weights cannot recover",
    "rung": "rollback",
    "outcome": "ordered",
    "reason": "poisoned weights cannot recover; to the newest known-good checkpoint: step 7500",
    "checkpoint": "step-7500-0",
    "target_step": 7500,
    "passed_over": [{"checkpoint": "step-8000-0", "step": 8000, "why": "suspect"}],
    "action": "llm-7b.a8120.0",
}
_FINDING: Final = {
    "sequence": 8120,
    "detector": "nonfinite",
    "symptom": "nonfinite",
    "subject": "run",
    "phase": "began",
    "severity": "critical",
    "verdict": "malignant",
    "onset_step": 8001,
    "step": 8001,
    "reason": "loss is nan at step 8001",
    "evidence": {"loss": "NaN"},
}
_ACTION: Final = {
    "id": "llm-7b.a8120.1",
    "executor": "alert",
    "state": "succeeded",
    "reason": "",
    "tries": 1,
    "planned_at": 1795003600.6,
    "changed_at": 1795003601.0,
    "payload": {"status": "firing", "run": "llm-7b", "severity": "critical"},
}
_STORY: Final = _INCIDENT | {
    "acknowledged_by": "ada",
    "decisions": [_DECISION],
    "findings": [_FINDING],
    "actions": [_ACTION],
    "requests": [{"sequence": 8130, "at": 1795003660.0, "request": "acknowledge", "by": "ada"}],
    "evidence": [
        {"sequence": 8119, "attempt": "20261121T140000-3f2a", "step": 8000, "loss": 2.31, "grad_norm": 0.8},
        {"sequence": 8120, "attempt": "20261121T140000-3f2a", "step": 8001, "loss": "NaN", "grad_norm": "NaN"},
    ],
}
_CHECKPOINT: Final = {
    "id": "step-7500-0",
    "attempt": "20261121T140000-3f2a",
    "step": 7500,
    "segment": 0,
    "state": "known_good",
    "name": "step=7500.ckpt",
    "digest": "sha256:" + "0" * 64,
    "size_bytes": 85000000000,
    "verified": True,
    "reason": "50 clean steps have followed",
}
_BUCKET: Final = {
    "segment": 0,
    "first_step": 1,
    "last_step": 16,
    "count": 16,
    "nonfinite": 0,
    "minimum": 10.1,
    "mean": 10.4,
    "maximum": 10.9,
    "last": 10.1,
}
_BATCH: Final = {
    "protocol": 1,
    "run": "llm-7b",
    "attempt": "20261121T140000-3f2a",
    "sender": "rank-0",
    "first_counter": 0,
    "observations": [
        {"kind": "attempt_started", "at": 1795000000.0, "mode": "act", "rollback": "forward"},
        {"kind": "step", "at": 1795000001.0, "step": 1, "loss": 10.9, "grad_norm": 4.2},
    ],
}
_COMMAND: Final = {
    "kind": "roll_back",
    "id": "llm-7b.a8120.0",
    "incident": "llm-7b.i8120",
    "checkpoint": "step-7500-0",
    "digest": "sha256:" + "0" * 64,
    "step": 7500,
    "segment": 0,
    "expires_step": 8201,
    "reason": "loss is nan at step 8001",
}
_NOTICE: Final = {
    "sequence": 1,
    "incident": "llm-7b.i8120",
    "text": "nonfinite (critical), opened: rollback at step 8001: poisoned weights cannot recover",
    "link": "http://127.0.0.1:8321/incidents/llm-7b.i8120",
}
_ATTEMPT: Final = {
    "attempt": "20261121T140000-3f2a",
    "started_at": 1795000000.2,
    "started": {"kind": "attempt_started", "at": 1795000000.0, "mode": "act"},
}
_WISH: Final = {"by": "ada", "reason": "loading another data set"}
_HELD: Final = {"is_held": True, "by": "ada", "reason": "maintenance of the file system"}

REQUESTS: Final[dict[tuple[str, str], Any]] = {
    ("post", "/v1/observations"): _BATCH,
    ("post", "/v1/hold"): {"by": "ada", "reason": "maintenance of the file system"},
    ("post", "/v1/release"): {"by": "ada", "reason": "the file system is back"},
    ("post", "/v1/runs/{run}/hold"): _WISH,
    ("post", "/v1/runs/{run}/release"): {"by": "ada"},
    ("post", "/v1/runs/{run}/rollback"): {"by": "ada", "reason": "samples look odd", "checkpoint": "step-7500-0"},
    ("post", "/v1/incidents/{incident}/acknowledge"): {"by": "ada"},
    ("post", "/v1/incidents/{incident}/annotate"): {"by": "ada", "reason": "shard 7 again, see ticket 12"},
    ("post", "/v1/incidents/{incident}/resolve"): {"by": "ada", "reason": "shard 7 removed"},
}
ANSWERS: Final[dict[tuple[str, str], Any]] = {
    ("get", "/health"): {"status": "ok", "protocol": 1},
    ("get", "/ready"): {"ready": True, "reasons": []},
    ("get", "/metrics"): '# TYPE sentinel_run_step gauge\nsentinel_run_step{run="llm-7b"} 8001.0\n',
    ("post", "/v1/observations"): {"accepted": 2, "duplicates": 0, "commands": [_COMMAND], "notices": [_NOTICE]},
    ("get", "/v1/runs"): {"runs": [_RUN]},
    ("get", "/v1/runs/{run}"): _RUN,
    ("get", "/v1/runs/{run}/attempts"): {"attempts": [_ATTEMPT]},
    ("get", "/v1/runs/{run}/decisions"): {"decisions": [_DECISION]},
    ("get", "/v1/runs/{run}/findings"): {"findings": [_FINDING]},
    ("get", "/v1/runs/{run}/checkpoints"): {"checkpoints": [_CHECKPOINT]},
    ("get", "/v1/runs/{run}/series"): {"run": "llm-7b", "series": {"loss": [_BUCKET]}},
    ("get", "/v1/incidents"): {"incidents": [_INCIDENT], "next_cursor": "MTc5NTAwMzYwMC41fmxsbS03Yi5pODEyMA=="},
    ("get", "/v1/incidents/{incident}"): _STORY,
    ("get", "/v1/decisions/{decision}"): _DECISION,
    ("get", "/v1/hold"): _HELD,
    ("post", "/v1/hold"): _HELD,
    ("post", "/v1/release"): {"is_held": False, "by": "ada", "reason": "the file system is back"},
    ("post", "/v1/runs/{run}/hold"): _RUN | {"held_by": "ada", "hold_reason": "loading another data set"},
    ("post", "/v1/runs/{run}/release"): _RUN,
    ("post", "/v1/runs/{run}/rollback"): _DECISION | {"change": "asked for by a person", "rule": "asked for by ada"},
    ("post", "/v1/incidents/{incident}/acknowledge"): _STORY,
    ("post", "/v1/incidents/{incident}/annotate"): _STORY,
    ("post", "/v1/incidents/{incident}/resolve"): _STORY | {"state": "resolved", "resolution": "settled by ada"},
}
PARAMETERS: Final = {"run": "llm-7b", "incident": "llm-7b.i8120", "decision": "llm-7b.d8120.0"}
PROBLEM: Final = {
    "type": "about:blank",
    "status": 422,
    "title": "Unprocessable Entity",
    "detail": "observations[1].loss: expected a number or one of 'NaN', 'Infinity', '-Infinity', got 'high'",
    "field": "observations[1].loss",
    "remedy": "Correct the field, /openapi.json describes it; nothing of this request was kept.",
}
