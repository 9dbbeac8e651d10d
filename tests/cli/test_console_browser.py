"""The console in Chromium: what a person clicks there."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import jlog
from cli.consoles import HOSTILE, NAME, WRITE, page, serving
from patience import HUNG_SECONDS

# A shop that takes orders until it is ended.
ORDERS = """
import itertools, json, sys, time, jlog
with jlog.Writer(sys.argv[1]) as writer:
    for number in itertools.count():
        order = {"drink": ("tea", "coffee", "cocoa")[number % 3], "cups": number % 4 + 1}
        writer.append(json.dumps(order).encode(), key=b"table %d" % (number * 7 % 20))
        time.sleep(0.001 + number % 5000 / 1e6)
"""
WIDTH = 1120  # of the manual's pictures
ASKED = "SELECT key::text AS place, count(*) AS orders, sum(cups) AS cups\nFROM journal GROUP BY ALL ORDER BY cups DESC LIMIT 5"


def until(browser, holds):
    # A page that refreshes itself may replace an element between two steps.
    return WebDriverWait(browser, HUNG_SECONDS, ignored_exceptions=[StaleElementReferenceException]).until(holds)


def rows(browser):
    """In one step, since a page may come in between."""
    return browser.execute_script("return [...document.querySelectorAll('#records tbody tr')].map(row => row.innerText)")


def test_what_a_person_clicks_works_while_four_producers_write(console, journals, browser):
    path = journals / NAME
    browser.get(console + "/")
    until(browser, lambda _: " 200 " in browser.find_element(By.ID, "journals").text)
    browser.find_element(By.LINK_TEXT, str(path)).click()
    assert "number 199" in rows(browser)[0]
    start = browser.find_element(By.NAME, "start")
    start.clear()
    start.send_keys("0\n")
    until(browser, lambda _: any(HOSTILE.decode() in row for row in rows(browser)[:1]))
    assert browser.title == str(path)
    browser.find_element(By.CSS_SELECTOR, "details summary").click()
    assert '"order": {\n' in browser.find_element(By.CSS_SELECTOR, "details pre").text
    browser.find_element(By.ID, "newer").click()
    until(browser, lambda _: any("number 50" in row for row in rows(browser)[:1]))
    start = browser.find_element(By.NAME, "start")
    start.clear()
    start.send_keys("150\n")
    until(browser, lambda _: any("number 150" in row for row in rows(browser)[:1]))
    producers = [subprocess.Popen([sys.executable, "-c", WRITE, path, "2000"]) for _ in range(4)]
    browser.find_element(By.ID, "follow").click()
    threading.Thread(target=lambda: [producer.wait() for producer in producers]).start()
    with jlog.Writer(path) as writer:

        def has_come(_):
            writer.append(b"followed " + HOSTILE)
            return any("followed <script>" in row for row in rows(browser)[:5])

        until(browser, has_come)
    assert [producer.wait(HUNG_SECONDS) for producer in producers] == [0] * 4
    newest = "return document.querySelector('#records tbody td').textContent"
    told = "return document.getElementById('span').textContent.replaceAll(',', '')"
    until(browser, lambda _: f"up to sequence {browser.execute_script(newest)}." in browser.execute_script(told))
    assert browser.title == str(path)
    assert not refused(browser)


def refused(browser):
    return [entry for entry in browser.get_log("browser") if "Content Security Policy" in entry["message"]]


def test_a_person_asks_in_sql_and_moves_a_subscriber_while_four_producers_write(journals, browser):
    journal = jlog.Journal(journals / NAME)
    journal.add_subscriber("billing")
    with serving("--allow-changes", journals) as console:
        producers = [subprocess.Popen([sys.executable, "-c", WRITE, journals / NAME, "2000"]) for _ in range(4)]
        browser.get(page(console, journals))
        browser.find_element(By.LINK_TEXT, "State").click()
        until(browser, lambda _: "records/s" in browser.find_element(By.ID, "live").text)
        name, position = (browser.find_elements(By.NAME, field)[0] for field in ("name", "position"))
        name.send_keys("billing")
        position.send_keys("120\n")
        until(browser, lambda _: browser.find_elements(By.ID, "confirm"))
        assert journal.subscribers()["billing"].sequence == 0
        browser.find_element(By.ID, "confirm").click()
        until(browser, lambda _: "120" in browser.find_element(By.ID, "subscribers").text)
        assert journal.subscribers()["billing"].sequence == 120
        browser.find_element(By.LINK_TEXT, "SQL").click()
        statement = until(browser, lambda _: browser.find_element(By.ID, "statement"))
        statement.clear()
        statement.send_keys("SELECT value FROM journal WHERE sequence IN (0, 7)")
        browser.find_element(By.CSS_SELECTOR, "form button").click()
        answer = until(browser, lambda _: browser.find_element(By.ID, "answer"))
        assert HOSTILE.decode() in answer.text
        assert "number 7" in answer.text
        assert browser.title == str(journals / NAME)
        assert [producer.wait(HUNG_SECONDS) for producer in producers] == [0] * 4
        browser.get(page(console, journals, "state"))
        until(browser, lambda _: "now 8,08" in browser.find_element(By.ID, "live").text)
    assert not refused(browser)


def shown(browser, scheme, width, height):
    """Sets the colours that the reader prefers, and the size of the screen."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_telephone_shows_the_pages_without_scrolling_sideways(console, journals, browser, scheme):
    shown(browser, scheme, 390, 844)
    jlog.Journal(journals / NAME).add_subscriber("a-subscriber-with-a-long-name-" * 3)
    for url in (console + "/", *(page(console, journals, name) for name in ("records", "state", "sql"))):
        browser.get(url)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    colours = browser.execute_script("return getComputedStyle(document.body).colorScheme")
    assert colours == "light dark"


def test_the_pages_that_the_manual_shows_while_four_producers_write(browser):
    """`make screenshots` keeps its pictures, in the directory JLOG_SCREENSHOTS."""
    with tempfile.TemporaryDirectory(prefix="shop-") as name:
        shop = Path(name)
        with jlog.Writer(shop / "clicks") as writer:
            writer.extend([b"click"] * 5000)
        jlog.Journal.create(shop / "orders")
        for subscriber in ("billing", "kitchen"):
            jlog.Journal(shop / "orders").add_subscriber(subscriber)
        with serving("--allow-changes", shop) as console, jlog.Worker(shop / "orders", "kitchen") as kitchen:
            producers = [subprocess.Popen([sys.executable, "-c", ORDERS, shop / "orders"]) for _ in range(4)]
            try:
                look_around(browser, console, shop, kitchen)
            finally:
                for producer in producers:
                    producer.terminate()
                    producer.wait()


def look_around(browser, console, shop, kitchen):
    pictures = os.environ.get("JLOG_SCREENSHOTS")
    # In the manual the curves are some minutes long.
    looks = 24 if pictures else 3
    browser.get(page(console, shop, "state", "orders"))
    points = "return (document.querySelector('figure path')?.getAttribute('d') ?? '').split('L').length"

    def enough(_):
        kitchen.ack(kitchen.take(300, timeout=0))
        return browser.execute_script(points) >= looks

    WebDriverWait(browser, HUNG_SECONDS + 5 * looks).until(enough)
    for scheme in ("light", "dark"):
        shown(browser, scheme, WIDTH, 240)
        browser.get(console + "/")
        keep(browser, f"journals-{scheme}")
        shown(browser, scheme, WIDTH, 540)
        browser.get(page(console, shop, "state", "orders"))
        keep(browser, f"state-{scheme}")
        browser.get(page(console, shop, "records", "orders", start="10s"))
        browser.find_element(By.CSS_SELECTOR, "details summary").click()  # new records may move it out of the page
        browser.find_element(By.ID, "follow").click()
        first = rows(browser)[0]
        until(browser, lambda _: rows(browser)[0] != first)  # noqa: B023 - it is called before `first` changes
        keep(browser, f"records-{scheme}")
        browser.get(page(console, shop, "sql", "orders"))
        statement = browser.find_element(By.ID, "statement")
        statement.clear()
        statement.send_keys(ASKED)
        browser.find_element(By.NAME, "parse").click()
        browser.find_element(By.CSS_SELECTOR, "form button").click()
        assert "table " in until(browser, lambda _: browser.find_element(By.ID, "answer")).text
        keep(browser, f"sql-{scheme}")
    assert not refused(browser)


def keep(browser, name):
    """Takes a picture of the page, which is as wide as the screen."""
    assert browser.execute_script("return document.documentElement.scrollWidth") <= WIDTH
    content = base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])
    if folder := os.environ.get("JLOG_SCREENSHOTS"):
        Path(folder, f"{name}.png").write_bytes(content)
