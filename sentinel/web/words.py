"""What happened, in words for someone who has never seen Sentinel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Symptom:
    """One kind of fault."""

    title: str
    clause: str
    """Goes on after "From step 7 on"."""
    meaning: str


SYMPTOMS: Final[dict[str, Symptom]] = {
    "nonfinite": Symptom(
        "Loss or gradient is not a number",
        "the loss or the gradients were NaN or infinite",
        "Once an optimizer has stepped on NaN every weight is lost, and training on only costs time.",
    ),
    "loss_spike": Symptom(
        "Loss spike",
        "the loss lay far above its level",
        "Most spikes pass by themselves. One that stays has often damaged the weights or the optimizer's state.",
    ),
    "divergence": Symptom(
        "Slow divergence",
        "the loss rose slowly and did not come back",
        "The settings are as often the cause as the data: look at the learning rate first.",
    ),
    "loss_drop": Symptom(
        "Loss fell too fast",
        "the loss fell faster than learning explains",
        "After a resume this is a sign that data is being repeated: the loader's place was not restored.",
    ),
    "gradient_norm_burst": Symptom(
        "Burst of the gradient norm",
        "the gradient norm was many times its usual size",
        "A burst alone harms little; it often comes a few steps before a loss spike.",
    ),
    "gradient_norm_vanished": Symptom(
        "Gradients vanished",
        "the gradient norm was next to nothing",
        "Nothing is being learned.",
    ),
    "dead_training": Symptom(
        "Nothing is learned",
        "the loss never left what guessing gives",
        "The run costs time and learns nothing: look at the learning rate, the data and the initialization.",
    ),
    "crash": Symptom(
        "A training process died",
        "a training process was dead",
        "Its exit code or signal and the last lines that it wrote are below. SIGKILL without a word is most often the "
        "kernel's, for memory.",
    ),
    "hang": Symptom(
        "The run hangs",
        "no step came any more",
        "The stacks below, where there are any, tell where each rank waits: look at the one that waits elsewhere than "
        "the others.",
    ),
    "throughput_drop": Symptom(
        "Steps became slower",
        "steps took markedly longer than usual",
        "Look for a slow device, a slow loader or a neighbour on the same machine or network.",
    ),
    "data_stall": Symptom(
        "The run waits for data",
        "much of each step was spent waiting for data",
        "More loader workers, or a faster store, would make the run faster.",
    ),
    "straggler": Symptom(
        "A rank is slower than the others",
        "one rank needed longer for its own work than the others",
        "All others wait for it at every step.",
    ),
    "device_fault": Symptom(
        "A device is faulty",
        "a device reported a fault",
        "The code in the reason is the vendor's: it tells whether a reset, a drain or a replacement is due.",
    ),
    "device_throttle": Symptom(
        "A device is slowed down",
        "a device's clocks were held down",
        "Heat or a weak power supply: look at the machine's cooling.",
    ),
    "power_cap": Symptom(
        "A device is at its power limit", "a device's clocks were held down by its power limit", "Often as it is meant."
    ),
}
RUNGS: Final = {
    "none": "do nothing",
    "watch": "wait and watch",
    "rollback": "roll back",
    "restart": "restart",
    "escalate": "ask a person",
}
OUTCOMES: Final = {
    "ordered": "ordered",
    "withheld": "refused by a limit",
    "would_have": "not done: Sentinel only observes here",
    "nothing": "",
}
STATES: Final = {
    "open": "open",
    "mitigating": "being mended",
    "resolved": "over",
    "escalated": "needs a person",
}
REQUESTS: Final = {
    "acknowledge": "looks after it",
    "annotate": "noted",
    "resolve": "settled it",
    "roll_back": "asked for a rollback",
}
CHECKPOINTS: Final = {
    "reported": "reported, not checked yet",
    "verified": "checked, not confirmed yet",
    "known_good": "known good",
    "suspect": "suspect",
    "bad": "bad",
    "deleted": "deleted",
}


def symptom(name: str) -> Symptom:
    """What is known of a symptom; of one without words here, its name."""
    plain = name.replace("_", " ")
    return SYMPTOMS.get(name) or Symptom(plain[:1].upper() + plain[1:], f"Sentinel saw: {plain}", "")


def sentence(incident: Document) -> str:
    """An incident in one sentence.

    >>> sentence({"symptom": "crash", "subject": "process", "onset_step": 7, "rollbacks": 0, "lost_steps": 0,
    ...     "lost_s": 0.0, "state": "resolved", "resolution": "settled by ada", "node": ""})
    'From step 7 on a training process was dead; nothing was done; it is over (settled by ada).'
    >>> sentence({"symptom": "loss_spike", "subject": "run", "onset_step": 7, "rollbacks": 1, "lost_steps": 5,
    ...     "lost_s": 2.0, "state": "resolved", "resolution": "", "node": ""})
    'From step 7 on the loss lay far above its level; Sentinel rolled back once, giving up 5 steps (2.0 s); it is over.'
    """
    text = f"From step {incident['onset_step']} on {symptom(incident['symptom']).clause}"
    text += "" if incident["subject"] in ("run", "process") else f" ({incident['subject']})"
    text += f" on node {incident['node']}" if incident.get("node") else ""
    deeds = _deeds(incident)
    if deeds:
        text += f"; {deeds}"
    elif incident["state"] == "resolved":
        text += "; nothing was done"
    why = f" ({incident['resolution']})" if incident["resolution"] else ""
    ends = {
        "open": "it is not over",
        "mitigating": "whether that helped is being watched" if deeds else "the order is given",
        "resolved": f"it is over{why}",
        "escalated": "a person is needed",
    }
    return f"{text}; {ends[incident['state']]}."


def deed(decision: Document) -> str:
    """What a decision chose."""
    target = decision.get("target_step")
    text = _spelled(RUNGS, decision["rung"])
    if decision["rung"] == "rollback" and target is not None:
        text += f" to step {target}"
    outcome = _spelled(OUTCOMES, decision["outcome"])
    return f"{text} ({outcome})" if outcome else text


def next_step(incident: Document, run: Document, decisions: Sequence[Document]) -> str:
    """What the person on call is to do now.

    Args:
        incident: the incident.
        run: where its run stands.
        decisions: about the incident, oldest first.
    """
    if incident["state"] == "resolved":
        return "Nothing: it is over. The reasons are kept below."
    if run["phase"] in ("finished", "failed", "interrupted") and incident["state"] != "escalated":
        return f"The run is {run['phase']}: nothing more is done. Look at the reasons before it is started again."
    holder = run["held_by"] or run.get("all_held_by")
    if holder:
        return f"Nothing is done while {holder} holds the run: release it when it may be acted on."
    last = decisions[-1] if decisions else None
    if incident["state"] == "escalated":
        why = last["reason"] if last else incident["reason"]
        return f"Look now, Sentinel will do no more by itself: {why}. When it is settled, resolve it."
    if incident["state"] == "mitigating":
        if last is not None and last["outcome"] == "ordered":
            return "Wait: the order is given, and the trainer has not answered yet."
        return "Wait: the run was rolled back, and it is over once the loss is back on its path."
    if last is None or last["outcome"] == "nothing":
        return "Nothing yet: Sentinel watches, and acts or asks a person should it not pass."
    if last["outcome"] == "would_have":
        return (
            f"Decide: Sentinel would have chosen to {deed(last | {'outcome': 'nothing'})}, and only observes this run. "
            'To let it act: SentinelCallback(mode="act"), and mode = "act" in the policy.'
        )
    if last["outcome"] == "withheld":
        return f"Sentinel wanted to {_spelled(RUNGS, last['rung'])} and was not allowed to: {last['reason']}."
    return f"Sentinel chose to {deed(last)}: {last['reason']}."


def _spelled(spelling: Mapping[str, str], word: str) -> str:
    """In plain words; a word that this release does not know, as it is."""
    return spelling.get(word, word)


def _deeds(incident: Document) -> str:
    """What was done about it and what that cost; empty if nothing was."""
    restarts = incident.get("restarts", 0)
    done = [f"Sentinel rolled back {_times(incident['rollbacks'])}"] if incident["rollbacks"] else []
    done += [f"the run began anew {_times(restarts)}"] if restarts else []
    lost = f"giving up {incident['lost_steps']} steps ({incident['lost_s']:.1f} s)"
    return " and ".join(done) + (f", {lost}" if done and incident["lost_steps"] else "")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
