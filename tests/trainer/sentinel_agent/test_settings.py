from __future__ import annotations

from pathlib import Path

import pytest

from sentinel_agent.settings import DEFAULT_URL, Settings, resolve


def test_defaults_observe_the_local_daemon() -> None:
    """Without options and variables the agent observes, and there is nothing to warn of."""
    assert resolve({}, {}) == Settings(run=None, url=DEFAULT_URL, mode="observe")


def test_argument_goes_before_environment_and_default(tmp_path: Path) -> None:
    """An argument beats the variable, the variable the default; an argument that is None is not given."""
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    environ = {
        "SENTINEL_RUN": "from-environment",
        "SENTINEL_URL": "http://other:1234/",
        "SENTINEL_MODE": "act",
        "SENTINEL_TOKEN_FILE": str(secret),
    }
    assert resolve({"run": "from-argument", "mode": None, "checkpoint_every": 5}, environ) == Settings(
        run="from-argument", url="http://other:1234", mode="act", token="s3cret", checkpoint_every=5
    )


def test_token_is_not_shown(tmp_path: Path) -> None:
    """The settings can be printed without telling the token."""
    secret = tmp_path / "token"
    secret.write_text("s3cret")
    assert "s3cret" not in repr(resolve({"token_file": secret}, {}))


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"mode": "obsrve"}, "mode 'obsrve' is none of observe, act, off, 'observe' is used: did you mean 'observe'?"),
        ({"mode": 3}, "mode 3 is none of observe, act, off"),
        ({"url": "localhost:8321"}, "url 'localhost:8321' is not an address, http://127.0.0.1:8321 is used"),
        ({"url": "http://host:port"}, "url 'http://host:port' is not an address"),
        ({"run": "a name"}, "run 'a name' cannot name a run, a name is made up: expected 1 to 128 of"),
        ({"checkpoint_every": 0}, "checkpoint_every=0 is ignored"),
        ({"checkpoint_every": True}, "checkpoint_every=True is ignored"),
        ({"data": "back"}, "data='back' is neither 'forward' nor 'exact': it is ignored"),
        ({"token_file": "/no/such/file"}, "the token file /no/such/file cannot be read, no token is sent"),
        (
            {"checkpoint_evry": 5},
            "there is no option 'checkpoint_evry': it is ignored; did you mean 'checkpoint_every'?",
        ),
    ],
)
def test_wrong_option_is_a_warning_and_the_default_is_taken(options: dict[str, object], warning: str) -> None:
    """What cannot be used is told with the remedy, and the settings are those without it."""
    settings = resolve(options, {})
    assert len(settings.warnings) == 1
    assert warning in settings.warnings[0]
    assert (settings.run, settings.url, settings.mode) == (None, DEFAULT_URL, "observe")
    assert (settings.checkpoint_every, settings.token) == (None, None)


def test_token_file_must_hold_one_token(tmp_path: Path) -> None:
    """A token that no header can carry is not sent."""
    secret = tmp_path / "token"
    secret.write_text("two\nlines")
    settings = resolve({"token_file": secret}, {})
    assert settings.token is None
    assert "holds no token" in settings.warnings[0]


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("SENTINEL_RUN_ID", "SENTINEL_RUN"),
        ("SENTINAL_MODE", "SENTINEL_MODE"),
        ("SENTINEL_URI", "SENTINEL_URL"),
        ("SENTINEL_TOKENFILE", "SENTINEL_TOKEN_FILE"),
        ("sentinel_mode", "SENTINEL_MODE"),
    ],
)
def test_mistyped_variable_is_told_with_the_right_name(variable: str, meant: str) -> None:
    """A variable that nearly has one of our names is told, not read."""
    settings = resolve({}, {variable: "act"})
    assert settings.warnings == (f"the variable {variable} is not read: did you mean {meant}?",)


@pytest.mark.parametrize(
    "variable", ["SENTINEL_DATABASE_URL", "SENTINEL_HOST", "SENTINEL_POLICY", "SENTINEL_PORT", "URL"]
)
def test_variable_of_others_is_no_concern(variable: str) -> None:
    """The daemon's variables and everybody else's pass without a word."""
    assert resolve({}, {variable: "x"}).warnings == ()
