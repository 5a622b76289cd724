"""Live, replayed and restored: three ways to the same outcomes, and none of them to an unsound order."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.domain.log_entry import LogEntry
from sentinel.pipeline.pipeline import Pipeline
from sentinel.protocol.codec import dumps, parse
from sentinel.protocol.observations import DAEMON_KINDS, SENDER_KINDS, PolicyChanged
from tests.builders import RUN, entry
from tests.pipeline.world import HAPPENINGS, POLICIES, World
from tests.protocol.strategies import instances_of

WILD = st.one_of(
    [instances_of(kind) for kind in (*SENDER_KINDS, *DAEMON_KINDS) if kind is not PolicyChanged]
    + [st.sampled_from(POLICIES).map(lambda policy: PolicyChanged(at=0.0, policy=policy))]
)
CUTS = st.lists(st.integers(0, 5000), max_size=3)


def _replay(entries: list[LogEntry], cuts: list[int]) -> list[str]:
    """What a fresh pipeline makes of the entries, put down as text and taken up again at each cut."""
    pipeline = Pipeline(RUN)
    places = {cut % len(entries) for cut in cuts}
    told: list[str] = []
    for number, each in enumerate(entries):
        if number in places:
            text = dumps(pipeline.snapshot())
            pipeline = Pipeline(RUN)
            pipeline.restore(parse(text))
        told.append(repr(pipeline.advance(each)))
    return told


@settings(deadline=None, max_examples=150)
@given(happenings=HAPPENINGS, cuts=CUTS)
def test_replay_and_restart_bring_out_what_was_live(happenings: list[Any], cuts: list[int]) -> None:
    """Whatever happens to a run, its log gives the same outcomes again, through snapshots too, and orders are sound."""
    world = World()
    for name, arguments, named in happenings:
        getattr(world, name)(*arguments, **named)
    live = [repr(outcome) for outcome in world.outcomes]
    assert _replay(world.entries, []) == live
    assert _replay(world.entries, cuts) == live


@settings(deadline=None, max_examples=150)
@given(
    wild=st.lists(st.tuples(WILD, st.sampled_from(["", "a", "b"]), st.booleans()), min_size=1, max_size=60), cuts=CUTS
)
def test_any_observations_in_any_order_are_taken(wild: list[tuple[Any, str, bool]], cuts: list[int]) -> None:
    """Observations that make no sense together never make the pipeline raise, nor two replays differ."""
    entries = [
        entry(observation, number, attempt=attempt, backlog=backlog)
        for number, (observation, attempt, backlog) in enumerate(wild, start=1)
    ]
    live = _replay(entries, [])
    assert all(text.endswith("raised=[])") for text in live)
    assert _replay(entries, cuts) == live
