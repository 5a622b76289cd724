"""What passes between a launcher and the processes that it started: variables, and files in a folder of the launcher's.

The folder is on the node's own disk and belongs to one launcher. Rank 0's agent says in ``attempt.json`` which run and
attempt it is and where its pins are, in ``progress`` which step it has reached, and in ``ended`` how the attempt ended.
Every rank that can be asked for its stacks has a file ``RANK-PID.stacks`` there, into which they are written.
"""

from __future__ import annotations

from typing import Final

from sentinel.protocol.ids import SenderId

FOLDER_VARIABLE: Final = "SENTINEL_LAUNCHER"
"""The launcher's folder."""
RESUME_VARIABLE: Final = "SENTINEL_RESUME"
"""The id of the checkpoint to go on from."""
ATTEMPT_FILE: Final = "attempt.json"
PROGRESS_FILE: Final = "progress"
ENDED_FILE: Final = "ended"
UNWATCHED: Final = "unwatched"
"""In ``ended``: the agent has turned itself off, and the training goes on."""
STACKS_SUFFIX: Final = ".stacks"
STACKS_SIGNAL: Final = 41
"""A real-time signal of Linux (SIGRTMIN is 34): schedulers send none of these to ask for a checkpoint or an end."""
_LAUNCHER: Final = "launcher-"


def launcher_sender(host: str) -> SenderId:
    """The name under which the launcher of a node speaks."""
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in host)
    return SenderId(f"{_LAUNCHER}{kept}"[:128])


def is_launcher(sender: SenderId) -> bool:
    """Whether a launcher speaks, and not the training itself."""
    return sender.startswith(_LAUNCHER)
