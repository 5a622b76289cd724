from __future__ import annotations

from pathlib import Path

import pytest

from sentinel.domain.errors import InvalidInput
from sentinel.policy.rules import parse_policy
from sentinel.settings import FOR_OTHERS, Row, Settings, check, load, rows


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a test sets is set."""
    for name in [*Settings.model_fields, "prot", *(name.removeprefix("SENTINEL_") for name in FOR_OTHERS)]:
        monkeypatch.delenv(f"SENTINEL_{name.upper()}", raising=False)


def value(settings: Settings, name: str, **options: object) -> Row:
    """One row of what is shown."""
    return next(row for row in rows(settings, **options) if row.name == name)


def test_without_a_word_it_is_the_daemon_of_one_machine() -> None:
    """The defaults are loopback, port 8321, SQLite here, the packaged policy, and no token."""
    settings = load()
    assert (settings.host, settings.port, settings.database_url) == ("127.0.0.1", 8321, "sqlite:///sentinel.db")
    assert settings.token() is None
    assert parse_policy(settings.policy()).mode == "act"
    assert check(settings) == []


def test_an_option_stands_over_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable is taken, an option replaces it, and an option that was not given does not; empty means unset."""
    monkeypatch.setenv("SENTINEL_PORT", "9000")
    monkeypatch.setenv("SENTINEL_LOG_LEVEL", "")
    assert (load().port, load(port=9001).port, load(port=None).port) == (9000, 9001, 9000)
    assert load().log_level == "info"


def test_every_setting_is_shown_with_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row says whether a value is a default, a variable's or an option's."""
    monkeypatch.setenv("SENTINEL_LOG_FORMAT", "json")
    options = {"port": 9001, "host": None}
    settings = load(**options)
    assert [row.name for row in rows(settings)] == list(Settings.model_fields)
    assert value(settings, "log_format", **options) == Row("log_format", "json", "SENTINEL_LOG_FORMAT")
    assert value(settings, "port", **options) == Row("port", "9001", "option")
    assert value(settings, "host", **options) == Row("host", "127.0.0.1", "default")
    assert value(settings, "policy_file").value == "the packaged one"


def test_secrets_are_not_shown() -> None:
    """A database's password and a webhook's path are hidden, and the rest of the address is there."""
    settings = load(
        database_url="postgresql+psycopg://sentinel:hunter2@db:5432/sentinel",
        webhook_url="https://hooks.example/T0/B0",
        heartbeat_url="https://hc.example/uuid",
    )
    assert value(settings, "heartbeat_url").value == "https://hc.example/***"
    assert value(settings, "database_url").value == "postgresql+psycopg://sentinel:***@db:5432/sentinel"
    assert value(settings, "webhook_url").value == "https://hooks.example/***"
    assert "hunter2" not in str(rows(settings))


@pytest.mark.parametrize(
    ("mistyped", "right"),
    [
        ("SENTINEL_PROT", "SENTINEL_PORT"),
        ("SENTINEL_WEBHOOK", "SENTINEL_WEBHOOK_URL"),
        ("SENTINEL_RNU", "SENTINEL_RUN"),
    ],
)
def test_a_mistyped_variable_stops_with_the_right_name(
    monkeypatch: pytest.MonkeyPatch, mistyped: str, right: str
) -> None:
    """A variable that nobody reads is an error that names the nearest one, not a setting that silently fails."""
    monkeypatch.setenv(mistyped, "9000")
    with pytest.raises(InvalidInput, match=f"{mistyped}: there is no such variable: did you mean {right}\\?"):
        load()


@pytest.mark.parametrize("name", [*sorted(FOR_OTHERS), "SENTINEL_SERVICE_HOST", "SENTINEL_PORT_8321_TCP_ADDR"])
def test_variables_of_others_are_no_mistakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """The agent's own variables, and those Kubernetes sets for a Service of this name, are let be."""
    (tmp_path / "value").write_text("x")
    monkeypatch.setenv(name, str(tmp_path / "value"))
    assert load().port == 8321


@pytest.mark.parametrize(
    ("variable", "text", "problem"),
    [
        ("SENTINEL_PORT", "http", "valid integer"),
        ("SENTINEL_PORT", "65536", "less than or equal to 65535"),
        ("SENTINEL_PORT", "tcp://10.0.0.1:8321", "enableServiceLinks: false"),
        ("SENTINEL_LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("SENTINEL_WEBHOOK_URL", "hooks.example/T0", "expected an address such as https://HOST/PATH"),
        ("SENTINEL_PUBLIC_URL", "ftp://host", "expected an address such as https://HOST/PATH"),
    ],
)
def test_a_wrong_value_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, problem: str
) -> None:
    """The error begins with the variable and says what it should be."""
    monkeypatch.setenv(variable, text)
    with pytest.raises(InvalidInput) as refused:
        load()
    assert refused.value.field == variable
    assert problem in str(refused.value)


def test_a_wrong_option_is_refused_as_an_option() -> None:
    """What came by the command line is named as it stands there."""
    with pytest.raises(InvalidInput, match="--log-level: "):
        load(log_level="loud")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "gpu-node-7"])
def test_beyond_loopback_only_with_a_token(tmp_path: Path, host: str) -> None:
    """An address that others can reach is refused without a token, with both remedies, and taken with one."""
    with pytest.raises(InvalidInput, match=r"without a token anyone .* SENTINEL_TOKEN_FILE, or listen on 127\.0\.0\.1"):
        load(host=host)
    token = tmp_path / "token"
    token.write_text("secret\n")
    assert load(host=host, token_file=token).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    """Every address of the machine itself may be listened on as it is."""
    assert load(host=host).host == host


@pytest.mark.parametrize(
    ("text", "problem"), [(None, "cannot be read: No such file"), ("\n", "one token"), ("two words", "one token")]
)
def test_a_token_file_must_hold_a_token(tmp_path: Path, text: str | None, problem: str) -> None:
    """A file that is missing, empty or holds more than one word is refused by its name."""
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
    settings = load(token_file=path)
    with pytest.raises(InvalidInput, match=f"SENTINEL_TOKEN_FILE: .*token.*{problem}"):
        check(settings)


def test_a_token_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    """The mode of the token's file is looked at, and the remedy is the command."""
    path = tmp_path / "token"
    path.write_text("secret\n")
    path.chmod(0o644)
    settings = load(token_file=path)
    assert settings.token() == "secret"
    assert check(settings) == [f"others can read the token in {path}: chmod 600 {path}"]
    path.chmod(0o600)
    assert check(settings) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [(None, "cannot be read: No such file"), ("mode = 'atc'", "mode"), ("mod = 'act'", "did you mean 'mode'")],
)
def test_a_wrong_policy_is_refused_by_file_and_key(tmp_path: Path, text: str | None, problem: str) -> None:
    """The policy's file and the key in it are named."""
    path = tmp_path / "policy.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidInput, match=rf"SENTINEL_POLICY_FILE: .*policy\.toml.*{problem}"):
        check(load(policy_file=path))


def test_a_wrong_alerts_file_is_named_with_its_key(tmp_path: Path) -> None:
    """The variable, the file and the key stand in the message; a file that others can read deserves a warning."""
    path = tmp_path / "alerts.toml"
    path.write_text('[[channels]]\nname = "ops"\nurll = "json://hooks.example"\n')
    with pytest.raises(InvalidInput, match=r"SENTINEL_ALERTS_FILE: .*channels.0.urll: .*did you mean 'url'"):
        check(load(alerts_file=path))
    path.write_text('[[channels]]\nname = "ops"\nurl = "json://hooks.example"\n')
    path.chmod(0o644)
    assert "chmod 600" in check(load(alerts_file=path))[0]
    path.chmod(0o600)
    assert check(load(alerts_file=path)) == []
    path.write_text('[[channels]]\nname = "ops"\nurl = "json://hooks.example"\nseverity = "warning"\n')
    assert "the policy tells only from critical on" in check(load(alerts_file=path))[0]
    with pytest.raises(InvalidInput, match=r"SENTINEL_ALERTS_FILE: .*absent.toml cannot be read"):
        check(load(alerts_file=tmp_path / "absent.toml"))
