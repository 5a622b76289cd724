"""Which channel gets which alert: read from TOML.

[[channels]]
name = "on call"
url = "slack://TOKEN_A/TOKEN_B/TOKEN_C/#training"  # any of Apprise's
severity = "critical"
runs = "llm-*"

[[channels]]
name = "alertmanager"
alertmanager = "http://alertmanager:9093"
"""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sentinel.alerts.apprise_channel import is_apprise_url
from sentinel.domain.errors import InvalidInput
from sentinel.domain.findings import Severity


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class ChannelTable(_Table):
    """One channel: an address of Apprise's, or an Alertmanager."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    url: str | None = None
    alertmanager: str | None = None
    severity: Severity = "info"
    """Alerts of at least this severity; which incidents are told at all is the policy's ``alerts.severity``."""
    runs: str = "*"
    """Pattern of run names."""

    @field_validator("url")
    @classmethod
    def _is_known(cls, value: str | None) -> str | None:
        if value is not None and not is_apprise_url(value):
            raise ValueError("is no address that Apprise knows: see its list of services")
        return value

    @field_validator("alertmanager")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname):
            raise ValueError("expected an address such as http://HOST:9093")
        return value

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.url is None) is (self.alertmanager is None):
            raise ValueError("give either url, an address of Apprise's, or alertmanager")
        return self


class AlertsTable(_Table):
    """The whole file."""

    channels: list[ChannelTable]

    @model_validator(mode="after")
    def _are_distinct(self) -> Self:
        names = [each.name for each in self.channels]
        for name in names:
            if names.count(name) > 1 or name in ("log", "webhook"):
                raise ValueError(f"the name {name!r} is taken: each channel needs one of its own")
        return self


def parse_channels(text: str) -> list[ChannelTable]:
    """The channels of a TOML text.

    Raises:
        InvalidInput: it is not TOML, or a key or value is wrong; names the key and the nearest right one.
    """
    try:
        return AlertsTable.model_validate(tomllib.loads(text)).channels
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput("channels", f"not TOML: {error}") from None
    except ValidationError as error:
        first = min(error.errors(include_input=False), key=lambda each: each["type"] != "extra_forbidden")
        path = ".".join(str(part) for part in first["loc"]) or "channels"
        problem = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            problem = f"there is no such key{_nearest(str(first['loc'][-1]))}"
        raise InvalidInput(path, problem) from None


def _nearest(key: str) -> str:
    known = sorted({*ChannelTable.model_fields, *AlertsTable.model_fields})
    matches = get_close_matches(key, known, n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""
