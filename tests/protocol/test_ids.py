from __future__ import annotations

import pytest

from sentinel.protocol.ids import is_name


@pytest.mark.parametrize("text", ["a", "7", "Run-1.b_2", "x" * 128])
def test_names(text: str) -> None:
    """Letters, digits, dot, underscore and hyphen make a name."""
    assert is_name(text)


@pytest.mark.parametrize("text", ["", ".", "-a", "_a", "a/b", "a b", "a\n", "é", "x" * 129, ".."])
def test_no_names(text: str) -> None:
    """What would mean something else in a path, a URL or a label is no name."""
    assert not is_name(text)
