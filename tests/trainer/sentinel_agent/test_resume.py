from __future__ import annotations

from pathlib import Path

import pytest

from sentinel.protocol.ids import CheckpointId
from sentinel_agent.checkpoints import Checkpoint, CheckpointStore
from sentinel_agent.contents import digest_of
from sentinel_agent.resume import CannotResume, find


@pytest.fixture
def pins(tmp_path: Path) -> Path:
    """A folder with a verified checkpoint ``good``, one that is ``half`` known, one that is ``gone``."""
    store = CheckpointStore(tmp_path)
    for name, state in (("good", "verified"), ("half", "reported"), ("gone", "verified")):
        path = tmp_path / f"{name}.ckpt"
        path.write_bytes(name.encode() * 1000)
        known = Checkpoint(
            id=CheckpointId(name),
            step=5,
            segment=0,
            name=path.name,
            state=state,  # type: ignore[arg-type]
            digest=digest_of(path),
        )
        store.add(known, {})
        store.update(known)
    (tmp_path / "gone.ckpt").unlink()
    return tmp_path


def test_a_process_finds_what_another_has_verified(pins: Path) -> None:
    """The manifest outlives the process that wrote it, and names the file."""
    assert find("good", pins) == pins / "good.ckpt"


@pytest.mark.parametrize(
    ("wanted", "why"),
    [("half", "not verified"), ("gone", "cannot be read"), ("other", "knows no such"), ("../good", "knows no such")],
)
def test_what_is_not_known_to_be_whole_is_not_loaded(pins: Path, wanted: str, why: str) -> None:
    """The reason names what is wrong with it; a path is no id."""
    with pytest.raises(CannotResume, match=why):
        find(wanted, pins)


def test_a_file_that_has_changed_is_not_loaded(pins: Path) -> None:
    """Its digest is compared with the one of when it was verified."""
    (pins / "good.ckpt").write_bytes(b"other")
    with pytest.raises(CannotResume, match="has changed since"):
        find("good", pins)
