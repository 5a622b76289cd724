"""Every format that the loggers in use write, read to the same reports."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from sentinel.domain.errors import InvalidInput
from sentinel.protocol.observations import StepReport
from sentinel.readers.sniffing import read_log


def _read(folder: Path, text: str, name: str = "log.csv") -> list[StepReport]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_log(path)


def _pairs(reports: list[StepReport]) -> list[tuple[int, float | None]]:
    return [(each.step, each.loss) for each in reports]


def test_columns_in_any_order(tmp_path: Path) -> None:
    """Loss, gradient norm, learning rate and step time are found by name, wherever they stand."""
    (report,) = _read(tmp_path, "lr,grad_norm,step,step_time,loss\n0.001,0.5,7,1.5,2.25\n")
    assert report == StepReport(at=1.0, step=7, loss=2.25, grad_norm=0.5, lr=0.001, step_s=1.5)


@pytest.mark.parametrize(
    ("spelling", "value"),
    [
        ("nan", math.nan),
        ("NaN", math.nan),
        ("-nan(ind)", math.nan),
        ("1.#QNAN", math.nan),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        ("1.#INF", math.inf),
        ("∞", math.inf),
    ],
)
def test_values_that_are_not_finite_in_every_spelling(tmp_path: Path, spelling: str, value: float) -> None:
    """However a logger spells NaN or infinity, it is one, and no missing value."""
    (report,) = _read(tmp_path, f"step,loss\n1,{spelling}\n")
    assert report.loss is not None
    assert math.isnan(report.loss) if math.isnan(value) else report.loss == value


@pytest.mark.parametrize("spelling", ["", "None", "null", "N/A"])
def test_what_was_not_recorded_is_not_known(tmp_path: Path, spelling: str) -> None:
    """An empty cell is no zero and no NaN."""
    (report,) = _read(tmp_path, f"step,loss,grad_norm\n1,2.0,{spelling}\n")
    assert report.grad_norm is None


def test_lightning_csv_logger(tmp_path: Path) -> None:
    """Rows of validation are passed over; a value logged a row later for the same step joins its report."""
    text = "epoch,lr-AdamW,step,train_loss_step,val_loss\n0,,9,2.5,\n0,0.1,9,,\n0,,9,,3.0\n0,,19,2.25,\n"
    reports = _read(tmp_path, text)
    assert _pairs(reports) == [(9, 2.5), (19, 2.25)]


def test_wandb_export(tmp_path: Path) -> None:
    """A column carries the run's name before it and its minimum and maximum beside it."""
    header = '"Step","cosmic-fire-7 - train/loss","cosmic-fire-7 - train/loss__MIN","cosmic-fire-7 - train/loss__MAX"'
    assert _pairs(_read(tmp_path, f'{header}\n"10","2.5","2.4","2.6"\n')) == [(10, 2.5)]


def test_trainer_state(tmp_path: Path) -> None:
    """A Hugging Face log has its evaluations and its closing summary left out."""
    history = [
        {"epoch": 0.1, "grad_norm": 0.5, "learning_rate": 1e-4, "loss": 2.5, "step": 10},
        {"epoch": 0.1, "eval_loss": 2.6, "step": 10},
        {"epoch": 0.2, "loss": 2.25, "step": 20},
        {"epoch": 0.2, "step": 20, "train_loss": 2.4, "train_runtime": 9.0},
    ]
    reports = _read(tmp_path, json.dumps({"global_step": 20, "log_history": history}, indent=2), "trainer_state.json")
    assert _pairs(reports) == [(10, 2.5), (20, 2.25)]
    assert (reports[0].grad_norm, reports[0].lr) == (0.5, 1e-4)


def test_json_lines(tmp_path: Path) -> None:
    """One object a line, objects in it included; bare NaN tokens are read."""
    text = '{"_step": 1, "train": {"loss": 2.5}}\n\n{"_step": 2, "train": {"loss": NaN}}\n'
    (first, second) = _read(tmp_path, text, "log.jsonl")
    assert (first.step, first.loss, second.step) == (1, 2.5, 2)
    assert second.loss is not None
    assert math.isnan(second.loss)


def test_tensorboard(tmp_path: Path) -> None:
    """Scalars of an event file, read by the tensorboard package."""
    pytest.importorskip("tensorboard", reason="reads event files: pip install tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415
    from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415
    from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415

    writer = EventFileWriter(str(tmp_path))
    for step in (1, 2):
        for tag, value in (("train/loss", 2.0 * step), ("train/grad_norm", 0.5)):
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            writer.add_event(Event(step=step, summary=summary))
    writer.close()
    (path,) = tmp_path.iterdir()
    assert [(each.step, each.loss, each.grad_norm) for each in read_log(path)] == [(1, 2.0, 0.5), (2, 4.0, 0.5)]


def test_a_log_without_steps_is_counted(tmp_path: Path) -> None:
    """Where no column holds a step, records are numbered from 1."""
    assert _pairs(_read(tmp_path, "loss\n2.5\n2.25\n")) == [(1, 2.5), (2, 2.25)]


def test_a_resume_goes_back(tmp_path: Path) -> None:
    """Steps that go back stay as they were logged."""
    assert [each.step for each in _read(tmp_path, "step,loss\n1,3\n2,2\n1,3\n2,2\n")] == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("step,loss\n1,2.0\n2,two\n", "log.csv, line 3, column 'loss'", "'two' is not a number"),
        ("step,loss\n1.5,2.0\n", "log.csv, line 2, column 'step'", "whole number"),
        ("step,loss\n1,2.0,9\n", "log.csv, line 2", "3 cells where the header has 2"),
        ("step,accuracy\n1,0.5\n", "log.csv, line 1", "--column loss=NAME; it has 'step', 'accuracy'"),
        ("", "log.csv, line 1", "empty"),
        ('{"step": 1, "loss": 2}\n{"step": \n', "log.csv, line 2, column", "not JSON"),
    ],
)
def test_an_error_names_file_line_and_column(tmp_path: Path, text: str, place: str, problem: str) -> None:
    """What cannot be read is told with its place and the remedy."""
    with pytest.raises(InvalidInput) as raised:
        _read(tmp_path, text)
    assert place in str(raised.value)
    assert problem in str(raised.value)


def test_a_column_may_be_named(tmp_path: Path) -> None:
    """A name that nobody knows is read when the caller names it; a wrong one is told with those that are there."""
    path = tmp_path / "log.csv"
    path.write_text("n,my objective\n5,2.5\n")
    assert _pairs(read_log(path, {"loss": "my objective", "step": "n"})) == [(5, 2.5)]
    with pytest.raises(InvalidInput, match="there is no column 'objective'"):
        read_log(path, {"loss": "objective"})
