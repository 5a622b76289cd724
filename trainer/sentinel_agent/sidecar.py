"""What a checkpoint leaves out: the state of the random generators and of the loaders, kept in a file beside it.

All of it is plain tensors and numbers, so that ``torch.load(weights_only=True)`` reads it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import torch


def capture(loaders: object = None) -> dict[str, Any]:
    """The generators' states now; changes none.

    Args:
        loaders: the loaders' states where they have any; left out if there is more in it than tensors and numbers.
    """
    version, words, gauss_next = random.getstate()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": [version, list(words), gauss_next],
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        from numpy import random as numpy_random  # noqa: PLC0415 - only where the training has it

        numpy_state: Any = numpy_random.get_state(legacy=True)  # noqa: NPY002 - the global generator is what they use
        name, keys, *rest = numpy_state
        state["numpy"] = [name, keys.tolist(), *rest]
    if loaders and _is_plain(loaders):
        state["loaders"] = loaders
    return state


def restore(state: Mapping[str, Any]) -> None:
    """Sets the generators back to what ``capture`` found."""
    torch.set_rng_state(state["torch"])
    version, words, gauss_next = state["python"]
    random.setstate((version, tuple(words), gauss_next))
    if "cuda" in state:
        torch.cuda.set_rng_state_all(state["cuda"])
    if "numpy" in state:
        from numpy import random as numpy_random  # noqa: PLC0415 - only where the training has it

        numpy_random.set_state(tuple(state["numpy"]))  # noqa: NPY002


def is_current(state: Mapping[str, Any]) -> bool:
    """Whether the generators stand where ``capture`` found them."""
    now = capture()
    is_same = torch.equal(now["torch"], state["torch"]) and now["python"][1] == state["python"][1]
    return is_same and all(map(torch.equal, now.get("cuda", []), state.get("cuda", [])))


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return type(value) is dict and all(_is_plain(item) for pair in value.items() for item in pair)
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(_is_plain(item) for item in value)
    return value is None or type(value) in (bool, int, float, str, bytes, torch.Tensor)
