"""Whether a checkpoint fits the model and the optimizers at hand, found out before anything is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def misfit(checkpoint: Mapping[str, Any], model: Any, optimizers: Sequence[Any], *, is_strict: bool = True) -> str:
    """Why it cannot be loaded, in words; empty if it can.

    Args:
        checkpoint: with ``state_dict`` and ``optimizer_states``.
        model: where the former belongs.
        optimizers: where the latter belong.
        is_strict: both sides must have the same entries.
    """
    saved, current = checkpoint["state_dict"], model.state_dict()
    if is_strict and saved.keys() != current.keys():
        return f"the model has other entries: {', '.join(sorted(saved.keys() ^ current.keys())[:3])}"
    for name in saved.keys() & current.keys():
        if getattr(saved[name], "shape", None) != getattr(current[name], "shape", None):
            return f"{name} has another shape"
    groups = [[len(group["params"]) for group in state["param_groups"]] for state in checkpoint["optimizer_states"]]
    if groups != [[len(group["params"]) for group in each.param_groups] for each in optimizers]:
        return "the optimizers have other parameters"
    return ""
