from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import logging
from sentinel import log
log.set_up({level!r}, {form!r})
logging.getLogger("sentinel.app").info("listening on %s", "http://x")
logging.getLogger("httpx").info("HTTP Request: POST https://hooks.example/SECRET")
logging.getLogger("uvicorn.error").info("Started server process")
logging.getLogger("apscheduler.executors.default").info("Running job")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("sentinel.engine").exception("it broke")
"""


def lines(level: str, form: str) -> list[str]:
    """What a process with this log writes to standard error."""
    program = PROGRAM.format(level=level, form=form)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == ""
    return run.stderr.splitlines()


def test_json_lines_are_one_object_each() -> None:
    """Every record is one line of JSON with time, level, logger and message; a traceback is inside it."""
    first, second = map(json.loads, lines("info", "json"))
    assert (first["level"], first["logger"], first["message"]) == ("info", "sentinel.app", "listening on http://x")
    assert first["at"].endswith("+00:00")
    assert "ZeroDivisionError" in second["error"]
    assert "error" not in first


def test_text_tells_a_person_the_same() -> None:
    """The lines of text hold level, logger and message."""
    first, second, *_ = lines("info", "text")
    assert first.endswith("INFO    sentinel.app: listening on http://x")
    assert "ERROR   sentinel.engine: it broke" in second


def test_a_higher_level_is_heard_alone() -> None:
    """With level error the news are left out; chatty libraries, and the secrets in their lines, always are."""
    assert "listening" not in "\n".join(lines("error", "text"))
    assert "SECRET" not in "\n".join(lines("debug", "text"))
