"""An error of the agent's own never reaches the training: it is caught, counted and told once.

After a few the agent turns itself off.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

ERRORS_BORNE: Final = 3
"""One may be an accident of the moment; the third shows that the agent does not work here."""

_log = logging.getLogger("sentinel_agent")
Hook = TypeVar("Hook", bound=Callable[..., None])


class HalfRestored(RuntimeError):
    """A rollback broke off in the middle: the state is neither the old one nor the checkpoint's, so training must end.

    The one error of the agent that is not caught.
    """


class Guard:
    """Counts the agent's own errors and turns it off when there are too many.

    Args:
        say: prints a line for the person at the terminal, and never raises.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.off = False
        self.errors_total = 0
        self._say = say

    def caught(self, where: str, error: Exception) -> None:
        """Takes note of an error that was kept from the training."""
        self.errors_total += 1
        if self.errors_total == 1:
            _log.warning("An error of the agent's own was caught in %s; training goes on.", where, exc_info=error)
        if self.errors_total == ERRORS_BORNE:
            self.off = True
            self._say(
                f"the agent has turned itself off after {ERRORS_BORNE} errors of its own, the last in {where}: "
                f"{type(error).__name__}: {error}; training goes on unwatched"
            )

    @contextmanager
    def watching(self, where: str) -> Generator[None]:
        """Catches what is raised inside, except what must end the training."""
        try:
            yield
        except HalfRestored:
            raise
        except Exception as error:  # noqa: BLE001 - the guarded edge
            self.caught(where, error)


def guarded(hook: Hook) -> Hook:
    """Makes a hook harmless: nothing happens when its object's ``guard`` is off, and what it raises is caught."""

    @functools.wraps(hook)
    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        guard: Guard = self.guard
        if guard.off:
            return
        try:
            hook(self, *args, **kwargs)
        except HalfRestored:
            raise
        except Exception as error:  # noqa: BLE001 - the guarded edge
            guard.caught(hook.__name__, error)

    return cast("Hook", call)
