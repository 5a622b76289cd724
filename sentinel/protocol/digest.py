"""What a body was when it was sent: a changed digit is still JSON, and a checksum of TCP misses one error in 65,536."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

HEADER: Final = "Content-Digest"
"""RFC 9530. Whoever does not send it is not checked."""


def digest(body: bytes) -> str:
    """The header's value for a body."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"
