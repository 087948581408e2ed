"""The page of a timeline in a real browser: hover links the two instructions of a hazard; zoom, keyboard, light and dark, narrow screens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tcsim.inspection.timeline_page import timeline_page
from tcsim.launchers.check import of_session
from tcsim.launchers.check import page as page_of
from tcsim.launchers.host_memory import HostArray
from tcsim.launchers.session import Session
from tcsim.ptx import Memory, parse
from tcsim.ptx.timeline import Timeline
from tests.hazards.kernels import STORE


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A copy whose source was written without a fence between."""
    memory, timeline = Memory(), Timeline()
    pointers = [memory.allocate(np.arange(1024, dtype=np.uint32).view(np.uint8)) for _ in range(2)]
    kernel = parse(STORE.without("PROXY_FENCE_MISSING")).kernel()
    run = kernel.launch(memory, pointers, block=(STORE.threads, 1, 1), observe=timeline.observer)
    path = tmp_path_factory.mktemp("timeline") / "page.html"
    path.write_text(timeline_page(timeline, run), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def page_of_a_program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program that launches the copy as it should be, and then the one without a fence: the page of a session."""
    session = Session("sm_90", log=None, timeline=True)
    arrays = [HostArray(np.arange(1024, dtype=np.uint32)) for _ in range(2)]
    for text in (STORE.source, STORE.without("PROXY_FENCE_MISSING")):
        session.launch(
            parse(text).kernel(), (1, 1, 1), (STORE.threads, 1, 1), (1, 1, 1), 0, arrays,
            lambda: [own.data_ptr().to_bytes(8, "little") for own in arrays],
        )  # fmt: skip
    shown = of_session(session).shown
    assert shown is not None
    path = tmp_path_factory.mktemp("timeline") / "program.html"
    path.write_text(page_of(shown), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser: Any, page: str) -> Any:
    """The page, drawn."""
    browser.get_log("browser")
    browser.get(page)
    assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert not browser.get_log("browser")


def info(browser: Any) -> str:
    """What the page says."""
    return str(browser.find_element(By.ID, "info").text)


def lines(browser: Any, name: str) -> set[int]:
    """The lines of PTX of the spans that have a mark."""
    script = f"return [...document.querySelectorAll('.s.{name}')].map((own) => data.spans[own.dataset.s][5])"
    return set(browser.execute_script(script))


def hover(browser: Any, node: Any) -> str:
    """Point at something; what the page says."""
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", node)
    ActionChains(browser).move_to_element(node).perform()
    return info(browser)


def test_a_hazard_links_both_instructions(opened: Any) -> None:
    """From the list, from the one instruction, and from the other."""
    hazard = opened.execute_script("return data.hazards[0]")
    both = ({hazard["line"]}, {hazard["other"]})
    assert hazard["name"] in hover(opened, opened.find_element(By.CSS_SELECTOR, "[data-h='0']"))
    assert (lines(opened, "lit"), lines(opened, "fed")) == both
    for line in (hazard["line"], hazard["other"]):
        place = opened.execute_script(f"return data.spans.findIndex((span) => span[5] === {line})")
        said = hover(opened, opened.find_element(By.CSS_SELECTOR, f"[data-s='{place}']"))
        assert f"line {line}: " in said and hazard["message"] in said
        assert lines(opened, "lit") | lines(opened, "fed") == both[0] | both[1]
        assert opened.find_elements(By.CSS_SELECTOR, "#hazards li.lit")


def test_the_page_of_a_program(browser: Any, page_of_a_program: str) -> None:
    """Of its second launch, which has the hazard."""
    browser.get(page_of_a_program)
    assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
    hazard = browser.execute_script("return data.hazards[0]")
    assert hazard["name"] == "PROXY_FENCE_MISSING"
    assert hazard["name"] in hover(browser, browser.find_element(By.CSS_SELECTOR, "[data-h='0']"))
    assert (lines(browser, "lit"), lines(browser, "fed")) == ({hazard["line"]}, {hazard["other"]})
    assert not browser.get_log("browser")


def test_every_span_is_drawn_and_says_what_it_is(opened: Any) -> None:
    count = opened.execute_script("return data.spans.length")
    assert len(opened.find_elements(By.CSS_SELECTOR, ".s")) == count > 20
    said = 0
    for number in range(0, count, max(1, count // 12)):
        text = opened.execute_script(f"showSpan({number}); return document.getElementById('info').textContent")
        lane = opened.execute_script(f"return data.lanes[data.spans[{number}][0]].name")
        assert text.startswith(f"{lane}: ")
        said += 1
    assert said >= 12


def test_search_keyboard_and_zoom(opened: Any) -> None:
    box = opened.find_element(By.ID, "search")
    box.send_keys("warp 1", Keys.ENTER)
    assert info(opened).startswith("warp 1: ")
    before = info(opened)
    opened.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert info(opened).startswith("warp 1: ") and info(opened) != before
    opened.switch_to.active_element.send_keys(Keys.ARROW_UP)
    assert info(opened).startswith("warp 0: ")
    opened.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert info(opened).startswith("Point at something")
    box.clear()
    box.send_keys("nothing of that name", Keys.ENTER)
    assert "nothing is called" in info(opened)
    width = "return document.querySelector('.time svg').getBoundingClientRect().width"
    small = opened.execute_script(width)
    opened.find_element(By.CSS_SELECTOR, "button[title='More detail']").click()
    assert opened.execute_script(width) > 1.3 * small
    opened.find_element(By.CSS_SELECTOR, "button[title='Less detail']").click()
    assert opened.execute_script(width) == pytest.approx(small, rel=0.05)


@pytest.mark.parametrize("width", [320, 390, 768, 1400])
def test_no_screen_is_too_narrow(opened: Any, width: int) -> None:
    """The page does not scroll sideways; the chart does, inside it. A tap shows what it is."""
    opened.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 700},
    )
    opened.refresh()
    assert opened.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert opened.execute_script("return document.getElementById('time').clientWidth") > width / 3
    opened.execute_script(
        "document.querySelector('[data-s=\"3\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    assert lines(opened, "lit")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_light_and_dark(opened: Any, theme: str) -> None:
    """As the system prefers, and as the button says; the text of a lane is far from the ground."""
    features = [{"name": "prefers-color-scheme", "value": theme}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    opened.refresh()

    def brightness(node: str, name: str) -> float:
        colour = opened.execute_script(f"return getComputedStyle(document.querySelector('{node}')).{name}")
        return sum(map(int, colour.strip("rgba()").split(",")[:3])) / 3

    for seen in (theme, {"light": "dark", "dark": "light"}[theme]):
        ground, ink = brightness("body", "backgroundColor"), brightness(".names", "color")
        assert (ground > 200) == (seen == "light") and abs(ground - ink) > 120
        opened.find_element(By.ID, "theme").click()
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
