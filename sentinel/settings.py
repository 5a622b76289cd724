"""What the daemon is told at its start: environment variables ``SENTINEL_...``, and the command's options over them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from sentinel.alerts.routes import ChannelTable, parse_channels
from sentinel.domain.errors import InvalidInput, InvalidPolicy
from sentinel.domain.findings import SEVERITIES
from sentinel.policy.rules import parse_policy

PREFIX: Final = "SENTINEL_"
FOR_OTHERS: Final = frozenset(
    {
        "SENTINEL_RUN",
        "SENTINEL_URL",
        "SENTINEL_MODE",
        "SENTINEL_TOKEN_FILE",
        "SENTINEL_SPOOL",
        "SENTINEL_REQUIRE_REAL",
        "SENTINEL_CORPUS",
    }
)
"""Read by the agent and the test suite."""
SERVICE_LINK: Final = re.compile(r"SENTINEL_(\w+_)?(SERVICE_(HOST|PORT\w*)|PORT_\d+_(TCP|UDP)\w*)")
"""Kubernetes sets these in every pod beside a Service whose name begins with "sentinel"."""
HIDDEN: Final = "***"


class Settings(BaseSettings):
    """Where the daemon listens, what it keeps its log in, by which policy it decides, and whom it tells."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8321
    """0 takes any that is free."""
    database_url: str = "sqlite:///sentinel.db"
    policy_file: Path | None = None
    """TOML; the policy that comes with Sentinel where none is named."""
    token_file: Path | None = None
    """Holds the bearer token that callers must show."""
    webhook_url: str | None = None
    """Gets each alert as a JSON POST."""
    alerts_file: Path | None = None
    """TOML: more channels for alerts, chosen by severity and run."""
    heartbeat_url: str | None = None
    """Is asked for each minute while the daemon works, so that somebody notices when it does not."""
    public_url: str | None = None
    """How people reach the daemon, for links in alerts and notices; where none is named, the address it listens on."""
    keep_days: Annotated[float, Field(gt=0)] = 30.0
    """How long steps are kept; what an incident's decisions follow from is kept for good."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"

    @field_validator("webhook_url", "heartbeat_url", "public_url")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("expected an address such as https://HOST/PATH")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        if self.token_file is None and not _is_loopback(self.host):
            raise ValueError(
                f"{self.host} can be reached from other machines, and without a token anyone there could command "
                "the runs: write a token into a file and set SENTINEL_TOKEN_FILE, or listen on 127.0.0.1"
            )
        return self

    def token(self) -> str | None:
        """The bearer token; None where none is wanted.

        Raises:
            InvalidInput: the file cannot be read or holds no token.
        """
        if self.token_file is None:
            return None
        token = _read(self.token_file, "SENTINEL_TOKEN_FILE").strip()
        if not token or not token.isascii() or any(character.isspace() for character in token):
            raise InvalidInput("SENTINEL_TOKEN_FILE", f"{self.token_file} must hold one token and nothing else")
        return token

    def channels(self) -> list[ChannelTable]:
        """The channels of the alerts file.

        Raises:
            InvalidInput: the file cannot be read, or is wrong; names the key.
        """
        if self.alerts_file is None:
            return []
        try:
            return parse_channels(_read(self.alerts_file, "SENTINEL_ALERTS_FILE"))
        except InvalidInput as error:
            if error.field == "SENTINEL_ALERTS_FILE":
                raise
            raise InvalidInput("SENTINEL_ALERTS_FILE", f"{self.alerts_file}: {error}") from None

    def policy(self) -> str:
        """The policy, as TOML.

        Raises:
            InvalidInput: the file cannot be read, or is no policy.
        """
        if self.policy_file is None:
            return files("sentinel.policy").joinpath("default.toml").read_text()
        text = _read(self.policy_file, "SENTINEL_POLICY_FILE")
        try:
            parse_policy(text)
        except InvalidPolicy as error:
            raise InvalidInput("SENTINEL_POLICY_FILE", f"{self.policy_file}: {error}") from None
        return text


@dataclass(frozen=True, slots=True)
class Row:
    """One setting for people to read."""

    name: str
    value: str
    origin: str
    """``default``, ``option``, or the environment variable."""


def load(**options: Any) -> Settings:
    """The settings from the environment; an option that is not None stands over its variable.

    Raises:
        InvalidInput: a variable is unknown or its value is wrong; names it and the remedy.
    """
    _refuse_unknown(os.environ)
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "host"
        origin = f"--{name.replace('_', '-')}" if name in given else _variable(name)
        problem = first["msg"].removeprefix("Value error, ")
        if str(first["input"]).startswith("tcp://"):
            problem = "Kubernetes set it for a Service named sentinel: put enableServiceLinks: false into the pod spec"
        raise InvalidInput(origin, problem) from None


def rows(settings: Settings, **options: Any) -> list[Row]:
    """Every setting with its value, secrets hidden, and where it came from.

    Args:
        settings: what ``load`` returned.
        options: what ``load`` was given.
    """

    def origin(name: str) -> str:
        if options.get(name) is not None:
            return "option"
        return _variable(name) if name in settings.model_fields_set else "default"

    return [Row(name, _shown(name, getattr(settings, name)), origin(name)) for name in Settings.model_fields]


def check(settings: Settings) -> list[str]:
    """Reads the files that the settings name; returns what deserves a warning.

    Raises:
        InvalidInput: one of them is wrong.
    """
    settings.token()
    told = parse_policy(settings.policy()).alerts.severity
    unheard = [
        f"the channel {each.name!r} asks for alerts from {each.severity} on, and the policy tells only from {told} on: "
        f'set alerts.severity to "{each.severity}" in the policy'
        for each in settings.channels()
        if "severity" in each.model_fields_set and SEVERITIES.index(each.severity) < SEVERITIES.index(told)
    ]
    secrets = {"token": settings.token_file, "addresses": settings.alerts_file}
    return unheard + [
        f"others can read the {what} in {path}: chmod 600 {path}"
        for what, path in secrets.items()
        if path is not None and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)
    ]


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    known = {_variable(name) for name in Settings.model_fields}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known or name in FOR_OTHERS or SERVICE_LINK.fullmatch(name):
            continue
        nearest = get_close_matches(name, sorted(known | FOR_OTHERS), n=1, cutoff=0)[0]
        raise InvalidInput(name, f"there is no such variable: did you mean {nearest}? Rename or unset it")


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read(path: Path, variable: str) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(variable, f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _shown(name: str, value: object) -> str:
    if value is None:
        return "the packaged one" if name == "policy_file" else ""
    text = str(value)
    parts = urlsplit(text)
    if name in ("webhook_url", "heartbeat_url"):  # its path is what authorizes
        return f"{parts.scheme}://{parts.hostname}/{HIDDEN}"
    if name == "database_url" and parts.password:
        _, _, host = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{parts.username}:{HIDDEN}@{host}"))
    return text
