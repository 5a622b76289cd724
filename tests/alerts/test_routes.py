from __future__ import annotations

import logging

import pytest

from sentinel.alerts.routes import parse_channels
from sentinel.domain.errors import InvalidInput

SLACK = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#training"
RIGHT = f"""
[[channels]]
name = "on call"
url = "{SLACK}"
severity = "critical"
runs = "llm-*"

[[channels]]
name = "am"
alertmanager = "http://alertmanager:9093"
"""


def test_channels_are_read_with_what_they_are_for() -> None:
    """Each has its severity and runs; without a word it gets every alert of every run."""
    on_call, other = parse_channels(RIGHT)
    assert (on_call.url, on_call.severity, on_call.runs) == (SLACK, "critical", "llm-*")
    assert (other.alertmanager, other.severity, other.runs) == ("http://alertmanager:9093", "info", "*")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("severity", "sevrity", "channels.0.sevrity: there is no such key; did you mean 'severity'?"),
        ('"critical"', '"loud"', "channels.0.severity: Input should be 'info', 'warning' or 'critical'"),
        ("slack:", "slak:", "channels.0.url: is no address that Apprise knows"),
        ("http://alert", "alert", "channels.1.alertmanager: expected an address such as http://HOST:9093"),
        ('alertmanager = "http', 'sound = "http', "channels.1.sound: there is no such key"),
        ('name = "am"', 'nam = "am"', "channels.1.nam: there is no such key; did you mean 'name'?"),
        ('name = "am"', 'name = "on call"', "the name 'on call' is taken"),
        ('name = "am"', 'name = "log"', "the name 'log' is taken"),
        ('name = "am"', f'name = "am"\nurl = "{SLACK}"', "give either url"),
        ("[[channels]]", "[channels", "not TOML"),
    ],
)
def test_a_wrong_key_is_named_and_no_secret_is_told(
    before: str, after: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The message has the key and the nearest right one; neither it nor a log has the address."""
    with caplog.at_level(logging.DEBUG), pytest.raises(InvalidInput) as raised:
        parse_channels(RIGHT.replace(before, after, 1))
    assert said in str(raised.value)
    assert "TIiajkdnlazkcOXrIdevi7FQ" not in str(raised.value) + caplog.text
