"""`jlogtool console` shows journals in a browser, as they are, to this machine alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import jlog
from cli.command import COMMAND, run
from patience import HUNG_SECONDS

HOSTILE = b"<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
WRITE = "import jlog, sys\nwith jlog.Writer(sys.argv[1]) as w:\n for n in range(int(sys.argv[2])): w.append(b'line %d' % n)"


@pytest.fixture
def journals(tmp_path):
    with jlog.Writer(tmp_path / "it's <b>here</b>") as writer:
        writer.append(HOSTILE, key=HOSTILE, headers=[("<i>", HOSTILE)])
        writer.append(b"\x1b[2J\x1b]0;owned\x07")
        writer.append(b'{"order": {"tea": 2}}')
        writer.append(bytes(range(256)))
        writer.append(None)
        writer.extend([b"number %d" % number for number in range(5, 200)])
    return tmp_path


@pytest.fixture
def console(journals):
    """The address of a console of these journals."""
    with subprocess.Popen(
        [*COMMAND, "console", "--listen", "127.0.0.1:0", journals], stderr=subprocess.PIPE, text=True
    ) as process:
        line = process.stderr.readline()
        yield re.fullmatch(r"Serving (http://127\.0\.0\.1:\d+)/\n", line)[1]
        process.terminate()
        assert process.wait(HUNG_SECONDS) in (0, 143, -15)


def ask(url, **headers):
    """Returns status, headers and text of the answer."""
    method = headers.pop("method", "GET")
    request = urllib.request.Request(url, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=HUNG_SECONDS) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def page(console, journals, **more):
    path = journals / "it's <b>here</b>"
    return f"{console}/journal?path={quote(str(path))}" + "".join(
        f"&{name}={quote(str(value))}" for name, value in more.items()
    )


def test_only_this_machine_by_its_own_name_is_answered(console):
    assert ask(console + "/")[0] == 200
    assert ask(console + "/", Host="evil.example")[0] == 403
    assert ask(console + "/", Origin="http://evil.example")[0] == 403
    assert ask(console + "/", Origin="null")[0] == 403
    assert ask(console + "/", Origin=console)[0] == 200
    assert ask(console + "/", method="POST")[0] == 405


def test_each_page_has_a_policy_that_loads_nothing_from_elsewhere(console, journals):
    for url in (console + "/", page(console, journals), console + "/console.js", console + "/nothing"):
        policy = ask(url)[1]["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "http" not in policy


def test_no_journal_outside_is_shown(console, journals, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "journal"
    jlog.Writer(outside).close()
    for path in (outside, f"{journals}/../{outside.parent.name}/journal", "/etc", ""):
        for where in ("journal", "tail"):
            assert ask(f"{console}/{where}?path={quote(str(path))}")[0] == 404


def test_records_are_escaped(console, journals):
    status, _, text = ask(page(console, journals))
    assert status == 200
    assert "<script>document" not in text
    assert "<img" not in text
    assert "<b>here" not in text
    assert "\x1b" not in text
    assert "\\x1b[2J\\x1b]0;owned\\x07" in text
    assert "00 01 02 03" in text
    assert ">null<" in text


def test_a_position_or_a_pattern_that_is_wrong_is_said(console, journals):
    assert ask(page(console, journals, start="nonsense"))[0] == 400
    assert ask(page(console, journals, grep="("))[0] == 400


def test_a_page_begins_at_a_time_a_sequence_or_a_match(console, journals):
    with jlog.Reader(journals / "it's <b>here</b>", start=100) as reader:
        (record,) = reader.read(1)
        reader.seek(record.timestamp)
        wanted = {"100": 100, record.timestamp.isoformat(): reader.position}
    for start, first in wanted.items():
        text = ask(page(console, journals, start=start))[2]
        assert re.search(r'<td class="number">(\d+)', text)[1] == str(first)
    assert re.findall(r"number 1\d7", ask(page(console, journals, grep="number 1.7$"))[2])[:3] == [
        "number 107",
        "number 117",
        "number 127",
    ]


@pytest.mark.damage
def test_damage_is_said_and_passed(console, journals):
    with jlog.Writer(journals / "damaged", precommit=0) as writer:
        for number in range(3):
            writer.append(b"value %d" % number)
    (segment,) = jlog.Journal(journals / "damaged").segments()
    content = Path(segment.path).read_bytes()
    Path(segment.path).write_bytes(content.replace(b"value 1", b"value X"))
    text = ask(f"{console}/journal?path={quote(str(journals / 'damaged'))}")[2]
    assert "damaged at byte" in text
    assert "value 0" in text
    assert "value 2" in text
    assert "value X" not in text


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:80", "nonsense", ":8080"])
def test_it_listens_on_this_machine_alone(listen, tmp_path):
    result = run("console", "--listen", listen, tmp_path)
    assert result.code == 2
    assert repr(listen) in result.err


@pytest.fixture
def browser(tmp_path):
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no chromium, or no chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for option in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={tmp_path}/chromium",
    ):
        options.add_argument(option)
    found = webdriver.Chrome(service=Service(driver), options=options)
    yield found
    found.quit()


def until(browser, holds):
    return WebDriverWait(browser, HUNG_SECONDS).until(holds)


def rows(browser):
    """In one step, since a page may come in between."""
    return browser.execute_script("return [...document.querySelectorAll('#records tbody tr')].map(row => row.innerText)")


def test_what_a_person_clicks_works_while_four_producers_write(console, journals, browser):
    path = journals / "it's <b>here</b>"
    browser.get(console + "/")
    assert [row.text.split()[-6] for row in browser.find_elements(By.CSS_SELECTOR, "#journals tbody tr")] != []
    browser.find_element(By.LINK_TEXT, str(path)).click()
    assert HOSTILE.decode() in rows(browser)[0]
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
    assert browser.title == str(path)
    assert not [entry for entry in browser.get_log("browser") if "Content Security Policy" in entry["message"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_telephone_shows_the_pages_without_scrolling_sideways(console, journals, browser, scheme):
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for url in (console + "/", page(console, journals)):
        browser.get(url)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    colours = json.loads(
        browser.execute_script("return JSON.stringify(getComputedStyle(document.documentElement).colorScheme)")
    )
    assert colours == "light dark"
