"""Names of things, as types of their own, so that a run's id is never passed where a checkpoint's is meant."""

from __future__ import annotations

import re
from typing import Final, NewType

RunId = NewType("RunId", str)
AttemptId = NewType("AttemptId", str)
SenderId = NewType("SenderId", str)
CheckpointId = NewType("CheckpointId", str)
IncidentId = NewType("IncidentId", str)
DecisionId = NewType("DecisionId", str)
ActionId = NewType("ActionId", str)
CommandId = NewType("CommandId", str)

LEADER: Final = SenderId("rank-0")
"""The agent of the first rank."""
_BESIDE: Final = re.compile(r"rank-[1-9][0-9]*|launcher-.*")

NAME_RULE: Final = "1 to 128 of the characters A-Z a-z 0-9 . _ - and a letter or digit first"
NAME_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
_NAME: Final = re.compile(NAME_PATTERN)


def is_name(text: str) -> bool:
    """Whether ``text`` may name a run, attempt or sender: it stands in URLs, file names and metric labels."""
    return _NAME.fullmatch(text) is not None


def leads(sender: SenderId) -> bool:
    """Whether a sender speaks for the training and takes its orders; other ranks and launchers speak beside it."""
    return _BESIDE.fullmatch(sender) is None
