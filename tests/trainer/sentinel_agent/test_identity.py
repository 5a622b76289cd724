from __future__ import annotations

from pathlib import Path

import pytest

from sentinel.protocol.ids import RunId, is_name
from sentinel_agent.identity import keep_run, kept_run, new_attempt, new_checkpoint, new_run


def test_made_up_names_are_names_and_differ() -> None:
    """Runs, attempts and checkpoints get ids that may stand in URLs and file names, a new one each time."""
    for make in (new_run, new_attempt, lambda: new_checkpoint(120, 1)):
        names = {make() for _ in range(50)}
        assert all(map(is_name, names))
        assert len(names) > 45
    assert new_checkpoint(120, 1).startswith("120-1-")


def test_kept_name_is_found_again(tmp_path: Path) -> None:
    """The newest kept name comes back, and no partial file stays behind."""
    keep_run(tmp_path / ".sentinel", RunId("first"))
    keep_run(tmp_path / ".sentinel", RunId("calm-heron-4f2a"))
    assert kept_run(tmp_path / ".sentinel") == "calm-heron-4f2a"
    assert [path.name for path in (tmp_path / ".sentinel").iterdir()] == ["run.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run": 3}', '{"run": "../elsewhere"}', "\xff"])
def test_damaged_file_is_as_none(tmp_path: Path, text: str) -> None:
    """A file that holds no name is not believed; a name from it never leads out of the folder."""
    (tmp_path / "run.json").write_text(text, encoding="latin-1")
    assert kept_run(tmp_path) is None
