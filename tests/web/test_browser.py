"""The pages in a real browser: Debian's Chromium, without a screen, against a live daemon and an agent's reports."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from sentinel.app import Daemon
from tests.daemons import Agent
from tests.web.conftest import TOKEN

pytestmark = pytest.mark.real

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}
CONTRAST = 4.5
"""WCAG 2.2, success criterion 1.4.3, for text of ordinary size."""
INK = """
() => [...document.querySelectorAll("main *, header *, footer *")]
  .filter((each) => [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())
    && each.getClientRects().length && each.closest("script, .u-wrap") === null)
  .map((each) => {
    let back = each;
    while (back && getComputedStyle(back).backgroundColor === "rgba(0, 0, 0, 0)") back = back.parentElement;
    const ground = back ? getComputedStyle(back).backgroundColor : "rgb(255, 255, 255)";
    return [each.tagName + "." + each.className, getComputedStyle(each).color, ground];
  })
"""
PAINTED = """
(canvas) => {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  for (let at = 0; at < pixels.length; at += 4) {
    if (pixels[at + 3] === 255) colours.add(`${pixels[at]},${pixels[at + 1]},${pixels[at + 2]}`);
  }
  return [...colours];
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not on PATH: install it (.ci/run names the package)")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def told(agent: Agent) -> tuple[Agent, str]:
    """A run that was rolled back and trains on, and its incident."""
    agent.ready_to_roll_back()
    order = agent.break_down().commands[0]
    agent.roll_back(order.id, 20)
    agent.train(60)
    return agent, agent.get("/v1/incidents")["incidents"][0]["id"]


class Visit:
    """A window, and all that went on in it."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.context: BrowserContext = browser.new_context(**{"viewport": DESKTOP} | options)
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.troubles: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.troubles.append(message.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))

    def open(self, path: str) -> Page:
        """Goes there, and waits until the curves are drawn, where there are any."""
        self.page.goto(self.url + path)
        for place in self.page.locator(".plot").all():
            expect(place.locator("canvas")).to_be_visible()
        return self.page


@pytest.fixture
def visit(browser: Browser, daemon: Daemon) -> Iterator[Callable[..., Visit]]:
    """Opens windows on the daemon; none may say anything on its console, or ask anyone else."""
    visits: list[Visit] = []

    def begin(**options: Any) -> Visit:
        visits.append(Visit(browser, daemon.url, **options))
        return visits[-1]

    yield begin
    for each in visits:
        each.context.close()
        assert each.troubles == []
        assert all(url.startswith(f"{daemon.url}/") for url in each.requests)


def paths(told: tuple[Agent, str]) -> list[str]:
    """Every kind of page of a run that was told of."""
    agent, incident = told
    return ["/", f"/runs/{agent.run}", f"/incidents/{incident}", "/login"]


def luminance(colour: str) -> float:
    """Relative luminance of an opaque colour, after WCAG."""
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Between text and its ground."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_curves_are_drawn_with_the_branch_that_was_given_up(
    visit: Callable[..., Visit], told: tuple[Agent, str], scheme: str
) -> None:
    """Each chart shows the run, the abandoned branch and the step that was not finite, in the colours of the scheme."""
    page = visit(color_scheme=scheme).open(f"/runs/{told[0].run}")
    assert page.locator(".plot canvas").count() == 2
    names = {"light": ["11,92,173", "180,83,9", "168,27,27"], "dark": ["109,176,255", "240,163,92", "255,157,150"]}
    colours = page.locator(".plot canvas").first.evaluate(PAINTED)
    assert set(names[scheme]) <= set(colours)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
def test_pages_fit_and_can_be_read(
    visit: Callable[..., Visit], told: tuple[Agent, str], scheme: str, viewport: dict[str, int]
) -> None:
    """On a phone and a desk no page scrolls sideways, all text stands out from its ground, what is hidden stays so."""
    window = visit(color_scheme=scheme, viewport=viewport)
    for path in paths(told):
        page = window.open(path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], path
        assert page.locator("input[hidden]:visible").count() == 0, path
        weak = [(who, ink, ground) for who, ink, ground in page.evaluate(INK) if contrast(ink, ground) < CONTRAST]
        assert weak == []


def test_a_new_step_and_an_incident_arrive_while_the_page_is_open(visit: Callable[..., Visit], agent: Agent) -> None:
    """Without a reload the step counts on, the curve grows, and the banner of a new incident appears."""
    agent.ready_to_roll_back()
    page = visit().open(f"/runs/{agent.run}")
    page.evaluate("window.kept = true")
    expect(page.locator("#news")).to_have_text("Live")
    agent.train(7)
    agent.break_down()
    expect(page.locator(".facts")).to_contain_text("88", timeout=15_000)
    expect(page.locator(".banner.bad")).to_contain_text("Loss or gradient is not a number")
    expect(page.locator('[data-live="about-loss"]')).to_contain_text("1 not finite")
    assert page.evaluate("window.kept")


def test_a_hidden_page_asks_for_nothing(visit: Callable[..., Visit], told: tuple[Agent, str]) -> None:
    """Polling stops while nobody looks, and begins at once when somebody does."""
    window = visit()
    page = window.open(f"/runs/{told[0].run}")
    hide = "(hidden) => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true }); "
    hide += "document.dispatchEvent(new Event('visibilitychange')) }"
    page.evaluate(hide, True)
    page.wait_for_load_state("networkidle")
    asked = len(window.requests)
    page.wait_for_timeout(3000)  # longer than the interval: only time can show that nothing comes
    assert len(window.requests) == asked
    with page.expect_request(f"**/runs/{told[0].run}"):
        page.evaluate(hide, False)


def test_the_keyboard_reads_single_points(visit: Callable[..., Visit], told: tuple[Agent, str]) -> None:
    """With the arrow keys the newest points of a curve are told one after the other, as text that is announced."""
    page = visit().open(f"/runs/{told[0].run}")
    chart = page.locator(".plot").first
    readout = page.locator("output.readout").first
    chart.focus()
    page.keyboard.press("ArrowLeft")
    expect(readout).to_contain_text("step 80: ")
    page.keyboard.press("ArrowLeft")
    expect(readout).to_contain_text("step 79: ")
    assert readout.get_attribute("aria-live") == "polite"
    assert chart.get_attribute("aria-label")


def test_every_fact_is_there_without_a_script(visit: Callable[..., Visit], told: tuple[Agent, str]) -> None:
    """A browser that runs no script shows standing, incident, decision and the numbers of the curves."""
    window = visit(java_script_enabled=False)
    window.page.goto(f"{window.url}/runs/{told[0].run}")
    for fact in ("Sentinel rolled back once", "roll back to step 20 (ordered)", "known good"):
        expect(window.page.locator("main")).to_contain_text(fact)
    window.page.locator(".curve summary").first.click()
    expect(window.page.locator(".curve table").first).to_be_visible()


def test_a_daemon_that_is_gone_is_told(browser: Browser, told: tuple[Agent, str], daemon: Daemon) -> None:
    """When the daemon answers no more the page says that what it shows is old."""
    window = Visit(browser, daemon.url)
    page = window.open(f"/runs/{told[0].run}")
    page.route("**/runs/**", lambda route: route.abort())
    expect(page.locator("#news")).to_contain_text("what you see is old", timeout=15_000)
    window.context.close()


def test_signing_in_leads_back_and_keeps_the_page_alive(browser: Browser, guarded: Daemon) -> None:
    """Behind a token the door opens with it and leads to the page that was wanted, which keeps itself up to date."""
    with Agent(guarded.url, token=TOKEN) as agent:
        agent.start()
        agent.train(20)
        window = Visit(browser, guarded.url)
        page = window.page
        page.goto(f"{guarded.url}/runs/{agent.run}")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(f"{guarded.url}/runs/{agent.run}")
        agent.train(3)
        expect(page.locator(".facts")).to_contain_text("23", timeout=15_000)
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        window.context.close()


def test_the_first_page_comes_soon(visit: Callable[..., Visit], told: tuple[Agent, str]) -> None:
    """Everything a first visit on a phone loads is under 64 KiB, chart library and all."""
    window = visit(viewport=PHONE)
    sizes: list[int] = []
    window.page.on("requestfinished", lambda request: sizes.append(request.sizes()["responseBodySize"]))
    window.open(f"/runs/{told[0].run}")
    deadline = time.monotonic() + 10
    while len(sizes) < 6 and time.monotonic() < deadline:
        window.page.wait_for_load_state("networkidle")
    assert len(sizes) >= 6
    assert 33 << 10 < sum(sizes) < 64 << 10
