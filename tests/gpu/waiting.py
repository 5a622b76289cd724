"""Finds out whether code of ours makes the training's thread wait for its device."""

from __future__ import annotations

from typing import Any

import torch


def never_waiting(kind: type, *hooks: str) -> Any:
    """A subclass whose hooks run where torch raises when the host waits for the device; their guard counts that."""

    def strict(name: str) -> Any:
        hook = getattr(kind, name)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            torch.cuda.set_sync_debug_mode("error")
            try:
                return hook(self, *args, **kwargs)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        return call

    return type("Strict", (kind,), {name: strict(name) for name in hooks})
