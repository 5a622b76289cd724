from __future__ import annotations

import json
from dataclasses import MISSING, fields
from math import inf, isnan, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.protocol import codec
from sentinel.protocol.codec import MAX_DEPTH, DecodeError, VersionMismatch
from sentinel.protocol.commands import Notice, Reply, RollBack
from sentinel.protocol.decoding import MAX_INTEGER, MAX_SERIES, MAX_TEXT
from sentinel.protocol.observations import (
    DAEMON_KINDS,
    SENDER_KINDS,
    CommandResult,
    ObservationBatch,
    StepReport,
    UnknownObservation,
)
from tests.builders import ONE_OF_EACH
from tests.protocol.strategies import instances_of

KINDS: tuple[Any, ...] = (*SENDER_KINDS, *DAEMON_KINDS)
BATCHES = instances_of(
    ObservationBatch,
    protocol=st.just(1),
    observations=st.lists(st.one_of([instances_of(kind) for kind in SENDER_KINDS]), max_size=4).map(tuple),
)
REPLIES = instances_of(
    Reply,
    commands=st.lists(instances_of(RollBack), max_size=2).map(tuple),
    notices=st.lists(instances_of(Notice), max_size=2).map(tuple),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


def _tree(kind: Any) -> dict[str, Any]:
    tree: dict[str, Any] = codec.to_tree(next(each for each in ONE_OF_EACH if isinstance(each, kind)))
    return tree


def _batch(*observations: Any, **given: Any) -> dict[str, Any]:
    base = {"protocol": 1, "run": "r", "attempt": "a", "sender": "s", "first_counter": 0}
    return base | {"observations": list(observations)} | given


def _path_of(tree: Any) -> str:
    with pytest.raises(DecodeError) as caught:
        codec.decode_batch(codec.parse(codec.dumps(tree)))
    assert str(caught.value).startswith(caught.value.path or "message")
    return caught.value.path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@given(data=st.data())
def test_observation_survives_the_wire(kind: Any, data: st.DataObject) -> None:
    """Every observation comes back as it was, whatever its values, NaN and infinities included."""
    observation = data.draw(instances_of(kind))
    assert repr(codec.decode_observation(codec.parse(codec.dumps(observation)))) == repr(observation)


@given(batch=BATCHES)
def test_batch_survives_the_wire(batch: ObservationBatch) -> None:
    """A batch comes back as it was."""
    assert repr(codec.decode_batch(codec.parse(codec.dumps(batch)))) == repr(batch)


@given(reply=REPLIES)
def test_reply_survives_the_wire(reply: Reply) -> None:
    """A reply comes back as it was, with its commands and notices."""
    assert repr(codec.decode_reply(codec.parse(codec.dumps(reply)))) == repr(reply)


@given(tree=st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_text_is_json_for_any_reader(tree: dict[str, Any]) -> None:
    """No text holds the bare tokens NaN or Infinity, at whatever depth they stood."""

    def refuse(token: str) -> None:
        raise AssertionError(token)

    json.loads(codec.dumps(tree), parse_constant=refuse)


def test_non_finite_numbers_are_spelled_as_text() -> None:
    """NaN and the infinities are written as three strings."""
    report = StepReport(at=0.0, step=1, loss=nan, grad_norm=inf, lr=-inf)
    tree = json.loads(codec.dumps(report))
    assert (tree["loss"], tree["grad_norm"], tree["lr"]) == ("NaN", "Infinity", "-Infinity")


def test_bare_tokens_are_read() -> None:
    """What Python's own json module writes for NaN and infinities is understood."""
    report = codec.decode_observation(codec.parse('{"kind":"step","at":0,"step":1,"loss":NaN,"lr":-Infinity}'))
    assert isinstance(report, StepReport)
    assert isnan(report.loss or 0.0)
    assert report.lr == -inf


def test_none_is_left_out_and_null_is_none() -> None:
    """A field that is not known is not written, and a null where None is allowed means the same."""
    assert "loss" not in codec.to_tree(StepReport(at=0.0, step=1))
    nulls = {"kind": "step", "at": 0.0, "step": 1, "loss": None, "batch_fingerprint": None}
    assert codec.decode_observation(nulls) == StepReport(at=0.0, step=1)
    result = {"kind": "command_result", "at": 0.0, "command": "k", "outcome": "failed", "step": 1, "checkpoint": None}
    assert codec.decode_observation(result) == CommandResult(at=0.0, command="k", outcome="failed", step=1)


def test_unknown_fields_are_ignored() -> None:
    """A field that a newer sender adds changes nothing."""
    assert codec.decode_batch(_batch(_tree(StepReport) | {"colour": "red"}, mood={})).observations == (
        StepReport(at=0.0, step=7, loss=2.0),
    )


def test_unknown_kind_is_kept() -> None:
    """A kind of a newer sender is an observation with its name, in the place it came."""
    batch = codec.decode_batch(_batch({"kind": "comet", "at": 3, "tail": [1]}, _tree(StepReport)))
    assert batch.observations[0] == UnknownObservation(at=3.0, named="comet")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_wrong_type_is_refused_with_the_path_of_the_field(kind: Any) -> None:
    """A list where no field takes one is refused, field by field, and the error names the field."""
    for field in fields(kind):
        with pytest.raises(DecodeError, match="expected") as caught:
            codec.decode_observation(_tree(kind) | {field.name: [[]]}, "observations[3]")
        assert caught.value.path.removesuffix("[0]") == f"observations[3].{field.name}"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_missing_field_is_refused_with_its_path(kind: Any) -> None:
    """Every field without a default must be there."""
    for field in fields(kind):
        if field.default is MISSING and field.default_factory is MISSING:
            tree = {name: value for name, value in _tree(kind).items() if name != field.name}
            with pytest.raises(DecodeError, match="is missing") as caught:
                codec.decode_observation(tree)
            assert caught.value.path == field.name


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", "7"),
        ("step", 7.0),
        ("step", True),
        ("step", -1),
        ("step", None),
        ("step", MAX_INTEGER + 1),
        ("step", 10**400),
        ("tokens", 2**63),
        ("loss", "nan"),
        ("loss", "2.0"),
        ("loss", True),
        ("loss", {}),
        ("extra", []),
        ("extra", {f"series {number}": 1.0 for number in range(MAX_SERIES + 1)}),
        ("extra", {"": 1.0}),
        ("extra", {"x" * 101: 1.0}),
        ("batch_fingerprint", 7),
        ("batch_fingerprint", "\ud800"),
        ("batch_fingerprint", "a\0b"),
        ("batch_fingerprint", "x" * (MAX_TEXT + 1)),
    ],
)
def test_bad_value_of_a_step_is_refused_with_its_path(field: str, value: Any) -> None:
    """Numbers, names and texts that no column or page could hold are refused where they stand."""
    assert _path_of(_batch(_tree(StepReport), _tree(StepReport) | {field: value})) == f"observations[1].{field}"


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ([], ""),
        (_batch(protocol=None), "protocol"),
        (_batch(protocol=1.0), "protocol"),
        (_batch(protocol=True), "protocol"),
        (_batch(run=""), "run"),
        (_batch(run="../x"), "run"),
        (_batch(attempt="a b"), "attempt"),
        (_batch(sender="é"), "sender"),
        (_batch(sender="s\n"), "sender"),
        (_batch(run="x" * 129), "run"),
        (_batch(backlog=1), "backlog"),
        (_batch(observations={}), "observations"),
        (_batch(3), "observations[0]"),
        (_batch({}), "observations[0].kind"),
        (_batch({"kind": 7}), "observations[0].kind"),
        (_batch({"kind": "\ud800"}), "observations[0].kind"),
        (_batch({"kind": "a\0b"}), "observations[0].kind"),
        (_batch({"kind": "comet", "at": "noon"}), "observations[0].at"),
        (_batch({"kind": "step", "at": 0, "step": 1, "extra": {"mine": "x"}}), "observations[0].extra.mine"),
        (
            _batch({"kind": "checkpoint", "at": 0, "step": 1, "state": "good", "checkpoint": "c"}),
            "observations[0].state",
        ),
        (
            _batch({"kind": "checkpoint", "at": 0, "step": 1, "state": "bad", "checkpoint": "/c"}),
            "observations[0].checkpoint",
        ),
    ],
)
def test_bad_batch_is_refused_with_the_path(tree: Any, path: str) -> None:
    """Whatever is wrong in a batch, the error says where."""
    assert _path_of(tree) == path


@pytest.mark.parametrize("kind", DAEMON_KINDS, ids=lambda kind: kind.kind)
def test_daemon_kinds_are_refused_from_senders(kind: Any) -> None:
    """A sender cannot release a run, change the policy or answer for an alert."""
    assert _path_of(_batch(_tree(StepReport), _tree(kind))) == "observations[1].kind"


def test_huge_integer_for_a_float_is_infinite() -> None:
    """A number beyond a float's range is infinite, with its sign, and no error."""
    for number, expected in ((10**400, inf), (-(10**400), -inf)):
        report = codec.decode_observation({"kind": "step", "at": 0.0, "step": 1, "loss": number})
        assert isinstance(report, StepReport)
        assert report.loss == expected


def test_another_version_is_told_apart() -> None:
    """A sender of another version reads both versions and the remedy, whatever else the batch holds."""
    with pytest.raises(VersionMismatch, match=r"version 2 and this daemon version 1: install the same release"):
        codec.decode_batch({"protocol": 2, "observations": 7})


@pytest.mark.parametrize("text", ["", "{", b"\xff", '{"a":1}x', "[" * 100_000, "1" * 5000, "nan"])
def test_what_is_not_json_is_refused(text: str | bytes) -> None:
    """Text that is cut off, not UTF-8, nested without end or too long a number is an error of the message."""
    with pytest.raises(DecodeError, match="not JSON"):
        codec.parse(text)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_has_a_limit_far_from_the_stack(opening: str) -> None:
    """What is accepted is nested so little that every reader can read it again."""
    closing = {"[": "]"}.get(opening, "}")
    codec.parse(opening * (MAX_DEPTH - 1) + "1" + closing * (MAX_DEPTH - 1))
    for depth in (MAX_DEPTH, 300):
        with pytest.raises(DecodeError, match="nested more than 32 deep"):
            codec.parse(opening * depth + "1" + closing * depth)


@given(
    junk=st.binary(max_size=60)
    | st.text(max_size=60).map(str.encode)
    | JSON.map(lambda tree: json.dumps(tree).encode())
)
def test_any_bytes_are_a_batch_or_a_decode_error(junk: bytes) -> None:
    """Bytes that nobody meant as a batch are refused by a DecodeError and nothing else."""
    with pytest.raises(DecodeError):
        codec.decode_batch(codec.parse(junk))


@given(batch=BATCHES, data=st.data())
def test_a_spoilt_batch_is_a_batch_or_a_decode_error(batch: ObservationBatch, data: st.DataObject) -> None:
    """A batch with any of its values replaced by any other JSON is decoded or refused, and never anything else."""
    tree = codec.parse(codec.dumps(batch))
    holder = data.draw(st.sampled_from([tree, *tree["observations"]]))
    holder[data.draw(st.sampled_from(sorted(holder)))] = data.draw(JSON)
    try:
        decoded = codec.decode_batch(codec.parse(codec.dumps(tree)))
    except DecodeError:
        return
    assert repr(codec.decode_batch(codec.parse(codec.dumps(decoded)))) == repr(decoded)


@pytest.mark.parametrize("tree", [3, {}, {"accepted": "1"}, {"accepted": 1, "commands": [{"kind": "dance"}]}])
def test_what_is_no_reply_is_refused(tree: Any) -> None:
    """An answer that is not a daemon's, or orders what this version does not know, is an error with its path."""
    with pytest.raises(DecodeError):
        codec.decode_reply(tree)


def test_an_unknown_observation_is_told_on_under_its_own_name() -> None:
    """What is encoded again is still the kind that nobody knows, whatever its name."""
    for named in ("", "phase_change", "unknown"):
        unknown = UnknownObservation(at=1.0, named=named)
        assert codec.decode_observation(codec.parse(codec.dumps(unknown))) == unknown
