"""The one place where the daemon reads the clock."""

from __future__ import annotations

import time


def now() -> float:
    """Unix seconds."""
    return time.time()


def monotonic() -> float:
    """Seconds that never go back."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Waits for something that gives no sign of its own, such as another process."""
    time.sleep(seconds)
