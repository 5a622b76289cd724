from __future__ import annotations

from base64 import urlsafe_b64encode
from pathlib import Path

import httpx
import pytest

from sentinel.app import Daemon
from sentinel.store import tokens
from sentinel.store.session import open_database
from tests.daemons import Agent, database_url, serving
from tests.web.conftest import TOKEN

PAGES = ["/", "/runs/run-1?last=200", "/incidents/run-1.i1"]


def sign_in(daemon: Daemon, token: str, **fields: str) -> httpx.Response:
    """The answer to the form."""
    return httpx.post(f"{daemon.url}/login", data={"token": token} | fields)


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("cookie", [None, "", "not base64 !", "d3Jvbmc=", TOKEN])
def test_without_the_token_a_page_leads_to_the_door(guarded: Daemon, path: str, cookie: str | None) -> None:
    """No cookie, a broken or another one leads to the form, which leads back; nothing of the runs is told."""
    cookies = {} if cookie is None else {"sentinel_token": cookie}
    answer = httpx.get(guarded.url + path, cookies=cookies)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login?then=/")
    assert answer.text == ""
    form = httpx.get(guarded.url + answer.headers["location"])
    assert f'name="then" value="{path}"' in form.text


def test_the_token_opens_the_pages_until_the_browser_is_closed(guarded: Daemon) -> None:
    """The form leaves a cookie that no script and no other site can use, and goes on to the page that was wanted."""
    with Agent(guarded.url, token=TOKEN) as agent:
        agent.start()
    answer = sign_in(guarded, TOKEN, then="/runs/run-1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs/run-1")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Max-Age" not in cookie
    assert "expires" not in cookie
    assert TOKEN not in cookie
    with httpx.Client(base_url=guarded.url, cookies=answer.cookies) as browser:
        assert "run-1" in browser.get("/").text
        assert browser.get("/runs/run-1").status_code == 200
        assert browser.post("/logout").headers["location"] == "/login"
        assert browser.get("/").status_code == 303


def test_the_cookie_opens_nothing_but_the_pages(guarded: Daemon) -> None:
    """Neither the API nor its metrics take the cookie: another site cannot make a browser act with it."""
    cookies = sign_in(guarded, TOKEN).cookies
    for path in ("/v1/runs", "/metrics", "/openapi.json"):
        assert httpx.get(guarded.url + path, cookies=cookies).status_code == 401
    held = httpx.post(f"{guarded.url}/v1/runs/run-1/hold", json={"by": "x"}, cookies=cookies)
    assert held.status_code == 401


@pytest.mark.parametrize("token", ["", "another", f"{TOKEN}x", "ä", '<script>"'])
def test_another_token_is_refused(guarded: Daemon, token: str) -> None:
    """The form comes back with the reason and without what was typed, and no cookie is left."""
    answer = sign_in(guarded, token)
    assert answer.status_code == 401
    assert ("another token" if token else "carries none") in answer.text
    assert "set-cookie" not in answer.headers
    assert not token or token not in answer.text.replace("another token", "")


@pytest.mark.parametrize("then", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:x", ""])
def test_the_door_leads_to_no_other_site(guarded: Daemon, then: str) -> None:
    """An address that is no page here is forgotten."""
    assert sign_in(guarded, TOKEN, then=then).headers["location"] == "/"


def test_a_form_of_another_site_is_refused(guarded: Daemon) -> None:
    """A browser that says that another site sent the form signs nobody in or out."""
    for path in ("/login", "/logout"):
        answer = httpx.post(guarded.url + path, data={"token": TOKEN}, headers={"Sec-Fetch-Site": "cross-site"})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


def test_a_form_beyond_measure_is_refused(guarded: Daemon) -> None:
    """No more is read than a token can be long."""
    assert httpx.post(f"{guarded.url}/login", content=b"token=" + b"x" * 100_000).status_code == 413


def test_without_a_token_everyone_may_look(daemon: Daemon) -> None:
    """On a daemon that wants none there is no form and no way out."""
    text = httpx.get(daemon.url).text
    assert "Sign out" not in text


def test_behind_https_the_cookie_stays_there(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where people reach the daemon over HTTPS the cookie is never sent in the clear."""
    folder = tmp_path_factory.mktemp("https")
    path = folder / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    with serving(folder, token_file=path, public_url="https://sentinel.example") as daemon:
        assert "Secure" in sign_in(daemon, TOKEN).headers["set-cookie"]


def test_a_viewers_token_opens_the_pages_and_a_trainings_does_not(tmp_path: Path) -> None:
    """Tokens of the database are taken by their role; a cookie of one that may only report leads to no page."""
    with serving(tmp_path) as daemon:
        database = open_database(database_url(tmp_path))
        with database.transaction() as connection:
            viewer = tokens.create(connection, "page", "viewer", runs="*", at=0.0)
            ingest = tokens.create(connection, "training", "ingest", runs="*", at=0.0)
        database.close()
        assert httpx.get(daemon.url, cookies=sign_in(daemon, viewer).cookies).status_code == 200
        refused = sign_in(daemon, ingest)
        assert (refused.status_code, "set-cookie" in refused.headers) == (401, False)
        assert "takes the role viewer or operator" in refused.text
        cookie = urlsafe_b64encode(ingest.encode()).decode()
        assert httpx.get(daemon.url, cookies={"sentinel_token": cookie}).status_code == 403
