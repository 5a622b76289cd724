from __future__ import annotations

import inspect
import re

from sentinel.domain import errors
from sentinel.domain.errors import Conflict, InvalidInput, InvalidPolicy, NotFound, SentinelError


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    """Every error class stands in the drawing below its parent, and nothing else does."""
    drawn = re.findall(r"^(.*?)(\b[A-Z]\w+)(?:  .*)?$", errors.__doc__ or "", flags=re.MULTILINE)
    stack: list[tuple[int, str]] = []
    parents: dict[str, str] = {}
    for indent, name in drawn:
        if not re.fullmatch(r"[│├└─ ]*", indent):
            continue
        while stack and stack[-1][0] >= len(indent):
            stack.pop()
        parents[name] = stack[-1][1] if stack else "Exception"
        stack.append((len(indent), name))
    classes = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, SentinelError)]
    assert parents == {each.__name__: each.__bases__[0].__name__ for each in classes}


def test_messages_name_the_thing_and_the_remedy() -> None:
    """What was asked for, the field that is wrong and the next thing to do stand in the message."""
    assert str(NotFound("run", "r7", "see `sentinel status`")) == "there is no run 'r7': see `sentinel status`"
    assert str(InvalidInput("observations[3].loss", "expected a number")) == "observations[3].loss: expected a number"
    assert InvalidPolicy("limits.rollbacks", "no").field == "limits.rollbacks"
    assert issubclass(Conflict, SentinelError)
