from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, StochasticWeightAveraging

from sentinel.protocol.commands import Notice, Reply
from sentinel.protocol.ids import IncidentId
from sentinel.protocol.observations import ObservationBatch, StepReport
from sentinel_agent import SentinelCallback
from tests.daemons import serving
from tests.fakes import FakeDaemon
from tests.trainer.sentinel_agent.small_training import loader, train


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the agent has printed, without its prefix."""
    return [line[len("sentinel: ") :] for line in capsys.readouterr().err.splitlines() if line.startswith("sentinel: ")]


def start_of(tmp_path: Path, capsys: pytest.CaptureFixture[str], *callbacks: pl.Callback, **options: Any) -> list[str]:
    """The five lines at the start of a training with a daemon."""
    capsys.readouterr()
    with FakeDaemon() as daemon:
        sentinel = SentinelCallback(url=daemon.url, **options.pop("sentinel", {}))
        train(tmp_path, sentinel, *callbacks, **options)
    *start, _ = lines_of(capsys)
    assert len(start) == 5
    return [line.replace(daemon.url, "URL").replace(str(tmp_path), "ROOT") for line in start]


def test_plain_trainer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Five lines say who this is, where it reports, what is missing, what is possible and what is read."""
    with FakeDaemon() as daemon:
        callback = SentinelCallback(url=daemon.url)
        train(tmp_path, callback)
    run, attempt = callback.agent.run, callback.agent.attempt
    *start, _ = lines_of(capsys)
    assert start[0] == (
        f"run {run}, attempt {attempt}, from the start, mode observe: incidents are told, "
        "nothing is done to the training"
    )
    assert start[1] == f"the daemon at {daemon.url} answers"
    assert start[2] == (
        f"checkpoints: ModelCheckpoint saves at the end of each epoch; pinned under {tmp_path}/.sentinel/{run}/pins; "
        "nothing to go back to before step 24: SentinelCallback(checkpoint_every=N) saves every N steps"
    )
    assert start[3] == (
        "rollback: forward, in place: weights, optimizer, schedulers and step go back, the data goes on (a plain "
        "DataLoader cannot be set back: use torchdata's StatefulDataLoader); "
        'mode="act" allows it, until then it is only proposed'
    )
    assert start[4].startswith(
        "reads loss, gradient norm (its own), learning rate, phase times, samples, peak memory, batch fingerprints, "
    )
    if not torch.cuda.is_available():
        assert "; cannot read GPU (" in start[4]
    assert len(start) == 5


def test_checkpoints_of_the_agents_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With checkpoint_every there is something to go back to, and nothing more to advise."""
    start = start_of(tmp_path, capsys, sentinel={"checkpoint_every": 5, "mode": "act"})
    assert start[0].endswith("mode act: what the daemon orders is done")
    assert start[2].startswith(
        "checkpoints: the agent saves every 5 steps; ModelCheckpoint saves at the end of each epoch;"
    )
    assert "SentinelCallback(" not in start[2]
    assert start[3].endswith(
        "the data goes on (a plain DataLoader cannot be set back: use torchdata's StatefulDataLoader)"
    )


@pytest.mark.parametrize(
    ("saver", "said"),
    [
        ({"every_n_train_steps": 7}, "ModelCheckpoint saves every 7 steps; pinned"),
        ({"every_n_epochs": 3}, "ModelCheckpoint saves at the end of every 3 epochs; pinned"),
        ({"save_weights_only": True}, "the script saves weights alone, and a rollback needs the optimizer's state too"),
        ({"save_top_k": 0}, "the script saves none, so there is nothing to go back to"),
    ],
)
def test_how_the_script_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], saver: dict[str, Any], said: str
) -> None:
    """The third line says how the user's own callbacks save, and advises only where that leaves a gap."""
    line = start_of(tmp_path, capsys, ModelCheckpoint(tmp_path / "mine", **saver), max_steps=2)[2]
    assert said in line
    assert ("SentinelCallback(checkpoint_every=N)" in line) is ("every_n_train_steps" not in saver)


def test_loader_without_a_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the length of an epoch is not known, no step is promised."""

    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            yield from loader(4).dataset

    data = torch.utils.data.DataLoader(Stream(), batch_size=4)
    assert "nothing to go back to before the end of the first epoch" in start_of(tmp_path, capsys, data=data)[2]


def test_rollback_that_is_impossible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The fourth line says why there is none."""
    averaging = StochasticWeightAveraging(0.01, swa_epoch_start=1)
    start = start_of(tmp_path, capsys, averaging, max_epochs=3)
    assert start[3] == "rollback: none, StochasticWeightAveraging restores its averages at the start of a training only"


def test_resumed_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A resume says where it goes on and what it can go back to already."""
    train(tmp_path, SentinelCallback(url="http://127.0.0.1:9", checkpoint_every=8))
    (pin,) = tmp_path.glob(".sentinel/*/pins/24-*.ckpt")
    with FakeDaemon() as daemon:
        train(tmp_path, SentinelCallback(url=daemon.url), ckpt_path=str(pin), max_epochs=2)
    capsys.readouterr()
    start = start_of(tmp_path, capsys, ckpt_path=str(pin), max_epochs=3)
    assert "resumed at step 24" in start[0]
    assert "3 checkpoints of earlier attempts can be gone back to" in start[2]
    assert "nothing to go back to" not in start[2]


def test_without_a_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second line says why nobody answers, where telemetry is kept, what to do; the last what waits."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        callback = SentinelCallback(url=url)
        train(tmp_path, callback)
    *start, end = lines_of(capsys)
    assert start[1].startswith(f"no daemon takes reports at {url} (ConnectionRefusedError: ")
    assert start[1].endswith(
        f": telemetry is kept in {tmp_path}/.sentinel/{callback.agent.run}/spool, up to 268 MB, and delivered when "
        "one does; start one with `sentinel serve`"
    )
    assert end.startswith("24 steps seen, 0 incidents, 0 rollbacks, 0 reports not delivered, ")
    assert " reports kept for the next attempt to deliver; 1 checkpoint pinned, " in end
    assert end.endswith(" MB of disk held by them alone")


def test_incident_is_one_line_with_its_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A notice of the daemon is printed once, as it is, and counted at the end."""
    notice = Notice(
        sequence=1,
        incident=IncidentId("i-1"),
        text="loss spike at step 3: would roll back",
        link="http://x/incidents/i-1",
    )

    def answer(batch: ObservationBatch) -> Reply:
        is_news = batch.notices_after < 1 and any(isinstance(each, StepReport) for each in batch.observations)
        return Reply(accepted=len(batch.observations), notices=(notice,) if is_news else ())

    with FakeDaemon(answer) as daemon:
        train(tmp_path, SentinelCallback(url=daemon.url))
    lines = lines_of(capsys)
    assert lines[5] == "loss spike at step 3: would roll back http://x/incidents/i-1"
    assert lines[6].startswith("24 steps seen, 1 incident, ")
    assert len(lines) == 7


def test_mistyped_option_is_told_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings stand before the five lines and stop nothing."""
    train(tmp_path, SentinelCallback(url="http://127.0.0.1:9", checkpoint_evry=3))
    lines = lines_of(capsys)
    assert lines[0].startswith("warning: there is no option 'checkpoint_evry'")
    assert len(lines) == 7


def test_a_token_that_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second line has the daemon's own words, and names the variable: a daemon need not be started."""
    token = tmp_path / "token"
    token.write_text("other")
    with serving(tmp_path, token_file=token) as daemon:
        wrong = tmp_path / "wrong"
        wrong.write_text("mistaken")
        monkeypatch.setenv("SENTINEL_TOKEN_FILE", str(wrong))
        train(tmp_path, SentinelCallback(url=daemon.url))
    line = lines_of(capsys)[1]
    assert "(HTTP 401: the request carries another token than this daemon's" in line
    assert "{" not in line
    assert line.endswith("; name a token that it takes with SENTINEL_TOKEN_FILE")
