from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from sentinel.domain.errors import NotFound
from sentinel.engine.replay import replay
from sentinel.pipeline.pipeline import VERSION
from sentinel.protocol.ids import RunId
from sentinel.store.session import Database, open_database
from tests.builders import RUN
from tests.daemons import Voice, database_url, writing

pytestmark = pytest.mark.usefixtures("every_store")

OBSERVE = 'mode = "observe"\n'


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """The log of a run that met a NaN, was set back and went on, over a restart in between."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        voice.ready_to_roll_back()
        (command,) = voice.break_down().commands
    with writing(tmp_path) as writer:
        again = Voice(writer)
        again.__dict__.update({name: value for name, value in vars(voice).items() if name != "_writer"})
        again.roll_back(command.id, 20)
        again.train(40)
    database = open_database(database_url(tmp_path))
    yield database
    database.close()


def rewrite(database: Database, column: str, old: str, new: str) -> None:
    """Replaces some text in every row of ``TABLE.COLUMN``."""
    table, _, name = column.partition(".")
    with database.transaction() as connection:
        connection.execute(text(f"UPDATE {table} SET {name} = replace({name}, :old, :new)"), {"old": old, "new": new})


def test_the_decisions_come_out_again(database: Database) -> None:
    """The log alone leads to the decisions that were stored, over restarts too."""
    result = replay(database, RUN)
    assert result.difference is None
    assert not result.is_failure
    assert (result.decisions, result.versions) == (3, (VERSION,))


def test_a_decision_that_was_tampered_with_is_found(database: Database) -> None:
    """A stored decision that does not follow from the log is the first difference, with both sides of it."""
    rewrite(database, "decisions.document", '"target_step":20', '"target_step":19')
    result = replay(database, RUN)
    assert result.is_failure
    assert result.difference is not None
    assert result.difference.stored is not None
    assert result.difference.replayed is not None
    assert (result.difference.stored["target_step"], result.difference.replayed["target_step"]) == (19, 20)
    assert result.difference.sequence == result.difference.stored["sequence"]


@pytest.mark.parametrize("which", ["ASC", "DESC"])
def test_a_decision_that_is_missing_is_found(database: Database, which: str) -> None:
    """A stored decision that was removed, at the beginning or the end, is a difference."""
    with database.transaction() as connection:
        connection.execute(
            text(f"DELETE FROM decisions WHERE id = (SELECT id FROM decisions ORDER BY sequence {which} LIMIT 1)")
        )
    result = replay(database, RUN)
    assert result.is_failure
    assert (result.decisions, result.difference is not None) == (2, True)


def test_another_version_that_differs_is_no_failure(database: Database) -> None:
    """Where another pipeline wrote the stretch, a difference is told and is no failure."""
    rewrite(database, "observations.payload", f'"version":"{VERSION}"', '"version":"0"')
    rewrite(database, "decisions.document", '"ordered"', '"withheld"')
    result = replay(database, RUN)
    assert result.difference is not None
    assert (result.difference.version, result.versions, result.is_failure) == ("0", ("0",), False)


def test_another_policy_shows_what_it_would_have_done(database: Database) -> None:
    """Asked again under a policy that only observes, the first difference is the rollback that was ordered."""
    result = replay(database, RUN, policy=OBSERVE)
    assert result.difference is not None
    assert result.difference.stored is not None
    assert result.difference.replayed is not None
    assert result.difference.stored["rung"] == "rollback"
    assert result.difference.replayed["rung"] == "watch"


def test_a_run_that_nobody_knows_is_not_found(database: Database) -> None:
    """A name without a log is an error that tells where the names are."""
    with pytest.raises(NotFound, match=r"there is no run 'absent'.*sentinel status"):
        replay(database, RunId("absent"))
