"""The daemon's own log: lines of text or of JSON on standard error."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Literal

QUIETER = {
    "alembic": logging.WARNING,
    "apscheduler": logging.WARNING,  # two lines for each job, every 2 s
    "httpcore": logging.WARNING,
    "httpx": logging.WARNING,  # its lines hold the whole address of a webhook, and with it the secret
    "uvicorn": logging.WARNING,
}
"""Libraries that tell more than an operator needs, and from which level on they are heard."""


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON: at (ISO 8601, UTC), level, logger, message and, where there is one, error."""
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up(level: str, form: Literal["text", "json"]) -> None:
    """Sends this process's log to standard error.

    Args:
        level: the lowest that is written, such as ``info``.
        form: of the lines.
    """
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name, lowest in QUIETER.items():
        logging.getLogger(name).setLevel(max(lowest, logging.getLogger().level))
