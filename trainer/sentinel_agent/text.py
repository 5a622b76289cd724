"""Text from anywhere (file names, errors, the user's names) made fit for a message to the daemon."""

from __future__ import annotations


def plain(text: str, limit: int = 1000) -> str:
    """The text as valid Unicode without NUL, cut to ``limit`` characters."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "")[:limit]
