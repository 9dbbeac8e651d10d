"""The site on a telephone and on a small screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium import webdriver

import exhaustive

WIDER = "return document.documentElement.scrollWidth > innerWidth"
BESIDE = """
const contents = document.querySelector(".toc-drawer").getBoundingClientRect();
const text = document.querySelector("article").getBoundingClientRect();
return text.right <= contents.left && contents.right <= innerWidth;
"""


def shown(browser: webdriver.Chrome, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.mark.exhaustive
@pytest.mark.xdist_group("site")
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_screen(site: Path, browser: webdriver.Chrome, width: int) -> None:
    shown(browser, width)
    wide = []
    for page in sorted(site.rglob("*.html")):
        browser.get(page.as_uri())
        if browser.execute_script(WIDER):
            wide.append(str(page.relative_to(site)))
    assert wide == []


@pytest.mark.xdist_group("site")
@pytest.mark.parametrize("width", [1248, 1313, *map(exhaustive.only, [1280, 1312, 1920])])
def test_the_contents_of_a_page_stand_beside_its_text(site: Path, browser: webdriver.Chrome, width: int) -> None:
    shown(browser, width)
    for name in ("index", "sharing-work", "spark"):
        browser.get((site / f"{name}.html").as_uri())
        assert browser.execute_script(BESIDE), (name, width)
