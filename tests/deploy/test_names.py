"""What the files under deploy/ call Sentinel's things is what they are called."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from sqlalchemy import make_url

from sentinel.cli.main import app
from sentinel.settings import FOR_OTHERS, PREFIX, Settings, check, load
from sentinel_agent.settings import VARIABLES
from tests.deploy.files import DEPLOY, MANIFESTS, documents, of_kind

FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and path.parent.name != "secrets")
KNOWN = {PREFIX + name.upper() for name in Settings.model_fields} | FOR_OTHERS
COMMAND = re.compile(r"(?:`|bin/|\[|exec )sentinel,? (?!--)([a-z]+)(?:,? ([a-z]+))?")
every_file = pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(DEPLOY)) for path in FILES])
VERBS = typer.main.get_command(app)


@every_file
def test_every_variable_is_read_by_somebody(path: Path) -> None:
    """Each SENTINEL_ name is a setting of the daemon or of the agent."""
    assert set(re.findall(r"\bSENTINEL_[A-Z_]+\b", path.read_text())) <= KNOWN


@every_file
def test_every_command_is_a_verb(path: Path) -> None:
    """What is started as `sentinel VERB` is in the command's help."""
    for verb, second in COMMAND.findall(path.read_text()):
        assert verb in VERBS.commands, path
        below = getattr(VERBS.commands[verb], "commands", None)
        assert below is None or second in below, (path, verb, second)


def test_the_commands_are_found() -> None:
    """The two that a daemon needs are started by compose, systemd and Kubernetes, and this test sees them there."""
    for name in ("compose/compose.yaml", "systemd/sentinel.service", "kubernetes/daemon.yaml"):
        found = COMMAND.findall((DEPLOY / name).read_text())
        assert [pair[0] for pair in found[:2]] == ["database", "serve"], name


def _compose() -> dict[str, str]:
    (file,) = documents(DEPLOY / "compose" / "compose.yaml")
    return dict(file["services"]["sentinel"]["environment"])


def _kubernetes() -> dict[str, str]:
    (daemon,) = of_kind("Deployment")
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def _systemd() -> dict[str, str]:
    unit = (DEPLOY / "systemd" / "sentinel.service").read_text()
    return dict(re.findall(r"^Environment=(\w+)=(.*)$", unit, re.MULTILINE))


@pytest.mark.parametrize("environment", [_compose, _kubernetes, _systemd])
def test_the_daemon_takes_what_it_is_given(
    environment: Callable[[], dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings are right, but for the token's place on this machine; it listens to others, and so has a token."""
    (tmp_path / "token").write_text("of-this-test")
    for name, value in environment().items():
        monkeypatch.setenv(name, re.sub(r"\$\{\w+:-(.*)\}", r"\1", value))  # as compose reads a default
    monkeypatch.setenv("SENTINEL_TOKEN_FILE", str(tmp_path / "token"))
    given = load()
    check(given)
    assert (given.host, given.token()) == ("0.0.0.0", "of-this-test")
    assert make_url(given.database_url).get_dialect().name in {"postgresql", "sqlite"}


@pytest.mark.parametrize("path", MANIFESTS, ids=[path.name for path in MANIFESTS])
def test_each_side_is_given_its_own_variables(path: Path) -> None:
    """The daemon's pods get settings of the daemon, a training's pods those of the agent."""
    own = {PREFIX + name.upper() for name in Settings.model_fields}
    known = set(VARIABLES.values()) if path.name == "training-job.yaml" else own
    for document in documents(path):
        for name in re.findall(r"'name': '(SENTINEL_\w+)'", str(document)):
            assert name in known, (path.name, name)
