from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sentinel.protocol.ids import CheckpointId
from sentinel_agent.checkpoints import PINS_KEPT, Checkpoint, CheckpointStore


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    """An empty store."""
    return CheckpointStore(tmp_path / ".sentinel" / "run" / "pins")


def saved(tmp_path: Path, text: str = "weights", name: str = "last.ckpt") -> Path:
    """A file of the user's own, written anew as Lightning does: beside, then moved."""
    partial = tmp_path / "partial"
    partial.write_text(text)
    return partial.rename(tmp_path / name)


def pin(store: CheckpointStore, path: Path, *, step: int = 1, size_bytes: int = 7) -> Checkpoint:
    """Pins a file."""
    checkpoint = replace(store.link(store.new(step, 0), path), size_bytes=size_bytes)
    store.add(checkpoint, {"torch": 1})
    store.update(checkpoint)
    return checkpoint


def test_pin_survives_the_users_file(store: CheckpointStore, tmp_path: Path) -> None:
    """A file that its owner overwrites or deletes is still there under its pin, and then holds disk by itself."""
    path = saved(tmp_path, "old")
    checkpoint = pin(store, path)
    assert store.held_bytes() == 0
    saved(tmp_path, "newer")
    assert store.path(checkpoint).read_text() == "old"
    assert store.held_bytes() == 3
    assert checkpoint.name == "last.ckpt"


def test_release_deletes_the_pin_alone(store: CheckpointStore, tmp_path: Path) -> None:
    """Letting go removes our link and sidecar; the user's file stays."""
    path = saved(tmp_path)
    checkpoint = pin(store, path)
    store.release(checkpoint)
    assert path.read_text() == "weights"
    assert [each.name for each in store.folder.iterdir()] == ["manifest.json"]
    assert store.checkpoints == []


def test_file_that_cannot_be_linked_is_used_where_it_is(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another file system the original is read, and never deleted."""
    path = saved(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    checkpoint = pin(store, path)
    assert store.path(checkpoint) == path
    assert store.surplus() == []
    store.release(checkpoint)
    assert path.exists()


def test_next_attempt_finds_the_pins(store: CheckpointStore, tmp_path: Path) -> None:
    """The manifest brings back what is still there, names what is gone, and clears half-made pins away."""
    first, second = (pin(store, saved(tmp_path, name=f"{step}.ckpt"), step=step) for step in (1, 2))
    store.path(first).unlink()
    (store.folder / "9-0-half.ckpt").touch()
    later = CheckpointStore(store.folder)
    assert later.load() == [first]
    assert later.checkpoints == [second]
    assert later.sidecar(second.id) == {"torch": 1}
    assert not (store.folder / "9-0-half.ckpt").exists()


@pytest.mark.parametrize("manifest", [None, "{", '{"checkpoints": [{"id": 1}]}'])
def test_without_a_manifest_nothing_is_deleted(store: CheckpointStore, tmp_path: Path, manifest: str | None) -> None:
    """A manifest that is gone or damaged makes no pin a stray: the files stay for people."""
    checkpoint = pin(store, saved(tmp_path))
    if manifest is None:
        (store.folder / "manifest.json").unlink()
    else:
        (store.folder / "manifest.json").write_text(manifest)
    assert CheckpointStore(store.folder).load() == []
    assert store.path(checkpoint).exists()


def test_first_attempt_finds_nothing(store: CheckpointStore) -> None:
    """No folder, no checkpoints, and none is made for the asking."""
    assert store.load() == []
    assert store.get(CheckpointId("x")) is None
    assert not store.folder.exists()


def test_disk_is_bounded_without_a_daemon(store: CheckpointStore, tmp_path: Path) -> None:
    """Beyond the limit the oldest two and the newest stay, and what is bad goes first."""
    pins = [pin(store, saved(tmp_path, name=f"{step}.ckpt"), step=step) for step in range(PINS_KEPT)]
    assert store.surplus() == []
    store.update(replace(pins[6], state="bad"))
    assert [each.step for each in store.surplus()] == [6]
    newer = [pin(store, saved(tmp_path, name=f"{step}.ckpt"), step=step) for step in (20, 21)]
    assert [each.step for each in store.surplus()] == [6, 2]
    assert newer[-1] in store.checkpoints


def test_full_disk_keeps_fewer(store: CheckpointStore, tmp_path: Path) -> None:
    """Where the disk has no room for some more of them, the oldest and the newest stay."""
    for step in range(4):
        pin(store, saved(tmp_path, name=f"{step}.ckpt"), step=step, size_bytes=10**18)
    assert [each.step for each in store.surplus()] == [1, 2]
