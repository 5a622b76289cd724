"""Every error that Sentinel raises on purpose, one tree; none of them knows HTTP.

SentinelError
├── NotFound             the thing that was asked for is not there
├── Conflict             it is there, and in a state in which this cannot be done
├── InvalidInput         what was given is wrong; names the field and the remedy
│   └── InvalidPolicy    a policy file is wrong; names the file and the key
├── IllegalTransition    a bug: a state change that the table does not have
├── StoreUnavailable     the database cannot be used: why, and what to do
├── DriverUnavailable    a device cannot be read: why, and what to do
├── NotAuthorized        a token is missing or wrong
└── Forbidden            the token is right, and its role may not do this
"""

from __future__ import annotations


class SentinelError(Exception):
    """Root of all errors raised on purpose. The message has the ids and the next thing to do."""


class NotFound(SentinelError):
    """Raised when a run, incident, decision or checkpoint is asked for that does not exist."""

    def __init__(self, noun: str, name: str, remedy: str = "") -> None:
        super().__init__(f"there is no {noun} {name!r}" + (f": {remedy}" if remedy else ""))


class Conflict(SentinelError):
    """Raised when a request does not fit the state of the thing it is about."""


class InvalidInput(SentinelError):
    """Raised when something given from outside is wrong.

    Attributes:
        field: the path of what is wrong, such as ``observations[3].loss``.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class InvalidPolicy(InvalidInput):
    """Raised when a policy cannot be understood; ``field`` is the key in the TOML."""


class IllegalTransition(SentinelError):
    """Raised when an event comes in a state that has no row for it: a bug, told with its whole story."""

    def __init__(self, thing: str, state: str, event: str) -> None:
        super().__init__(f"{thing} is {state!r} and the event {event!r} has no row there")


class StoreUnavailable(SentinelError):
    """Raised when the database cannot be opened, read or written; nothing was changed."""


class DriverUnavailable(SentinelError):
    """Raised when an accelerator or its driver cannot be asked on this node."""


class Forbidden(SentinelError):
    """Raised when a caller is known and may not do what is asked; names the role that may."""


class NotAuthorized(SentinelError):
    """Raised when a request carries no token or a wrong one."""
