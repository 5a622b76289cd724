"""How ranks that need no agreement learn which run they are: rank 0 leaves a note in the store of torch.distributed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import Any

import torch.distributed as dist

_meetings = count()


class Board:
    """One note, left by rank 0 and read by the others, off their training's thread. A store that is gone is no error.

    Args:
        store: that of torch.distributed.
        key: the note's place in it.
    """

    def __init__(self, store: Any, key: str) -> None:
        self._store = store
        self._key = key

    def publish(self, facts: Mapping[str, str]) -> None:
        """Rank 0 tells what the others must know of the run."""
        with suppress(RuntimeError):  # torch's DistError
            self._store.set(self._key, json.dumps(facts))

    def facts(self) -> Mapping[str, str]:
        """What rank 0 has told; empty before."""
        with suppress(RuntimeError):
            if self._store.check([self._key]):
                facts: Mapping[str, str] = json.loads(self._store.get(self._key))
                return facts
        return {}


def board() -> Board | None:
    """The note of this training; every rank's n-th call finds the others' n-th. None without a process group."""
    key = f"sentinel/run/{next(_meetings)}"
    if not (dist.is_available() and dist.is_initialized()):
        return None
    return Board(dist.distributed_c10d._get_default_store(), key)
