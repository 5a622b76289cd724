"""The protocol's version, and what the two sides do when they differ.

A *field* that the other side does not know is ignored, and an *observation kind* that an older daemon does not know is
kept in its log and not judged: both are additions and leave the version alone. The version rises only when the meaning
of something that exists changes; then the daemon refuses the batch and names both versions, and the agent goes on
training without a supervisor and says so.
"""

from __future__ import annotations

from typing import Final

PROTOCOL_VERSION: Final = 1
