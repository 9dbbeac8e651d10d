"""The site that `make docs` builds: it builds without a warning, and each of its links leads somewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

from docs.console import DOCS

MARKDOWN_LINK = re.compile(r"\]\(([^()\s]+)\)")
OUTSIDE = re.compile(r"https://[\w.-]+\.[a-z]+(/[\w./#?=&%~+-]*)?")
METHOD = re.compile(r'<dl class="py method">\s*<dt class="[^"]*" id="([\w.]+)">(.*?)</dt>', re.DOTALL)
PARAMETER = re.compile(r'<em class="sig-param"><span class="n"><span class="pre">(\w+)</span>')
LISTED = re.compile(r'<li><p><code class="[^"]*">(.*?)</code>:', re.DOTALL)
API = re.compile(r'<dt class="sig[^"]*" id="([\w.]+)">(.*?)</dt>\s*<dd>(.*?)(?=<dl class="py|</dd></dl>|</section>)', re.DOTALL)
WRONG = re.compile(r'<dl class="simple">|<blockquote>')
TAG = re.compile(r"<[^>]+>")
OPTION_OUTSIDE_CODE = re.compile(r"(?:--|–)[a-z][a-z-]+")
CODE = re.compile(r"<(pre|code|title|script|style)\b.*?</\1>", re.DOTALL)
PAGES = sorted([*DOCS.parent.glob("*.md"), *DOCS.rglob("*.md"), DOCS.parent / "tools" / "model" / "README.md"])


class Page(HTMLParser):
    """The places that a page links to and loads from, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.append(value)
            elif value and name in ("id", "name"):
                self.anchors.add(value)


@pytest.mark.xdist_group("site")
def test_each_method_of_the_api_has_its_types(site: Path) -> None:
    """Those of the core come from its stubs."""
    methods = METHOD.findall((site / "python.html").read_text(encoding="utf-8"))
    assert {"jlog.Writer.append", "jlog.RecordBatch.values", "jlog.Journal.create"} <= {name for name, _ in methods}
    assert [name for name, signature in methods if "sig-return" not in signature] == []


@pytest.mark.xdist_group("site")
def test_no_signature_of_the_api_has_a_private_argument(site: Path) -> None:
    arguments = PARAMETER.findall((site / "python.html").read_text(encoding="utf-8"))
    assert {"path", "next_segment"} <= set(arguments)
    assert [name for name in arguments if name.startswith("_")] == []


@pytest.mark.xdist_group("site")
def test_each_argument_in_the_list_below_a_signature_is_one_of_the_signature(site: Path) -> None:
    """A line of prose that begins with a word and a colon would be taken for one."""
    wrong, found = [], 0
    for page in ("python.html", "kafka-reference.html"):
        for name, signature, text in API.findall((site / page).read_text(encoding="utf-8")):
            listed = [word for item in LISTED.findall(text) for word in TAG.sub("", item).split(", ")]
            wrong += [f"{name}: {word}" for word in listed if word not in re.findall(r"\w+", TAG.sub("", signature))]
            found += len(listed)
    assert found > 50
    assert wrong == []


@pytest.mark.xdist_group("site")
def test_each_option_of_a_command_is_code(site: Path) -> None:
    """Elsewhere its hyphens may become a dash or the end of a line."""
    shown = {str(page.relative_to(site)): CODE.sub("", page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}
    found = {name: OPTION_OUTSIDE_CODE.findall(TAG.sub("", text)) for name, text in shown.items()}
    assert {name: options for name, options in found.items() if options} == {}


@pytest.mark.xdist_group("site")
def test_no_paragraph_of_a_docstring_is_taken_for_a_definition_or_a_quotation(site: Path) -> None:
    """Sphinx makes a definition of a line that is followed by an indented one, and a quotation of an indented paragraph."""
    pages = [site / name for name in ("python.html", "kafka-reference.html", "spark.html", "arrow.html")]
    assert [page.name for page in pages if WRONG.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.xdist_group("site")
def test_each_link_of_the_site_leads_to_a_page_and_a_place_in_it(site: Path) -> None:
    pages = {path: Page(path) for path in site.resolve().rglob("*.html")}
    assert len(pages) > 30
    broken = []
    for path, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme == "file":
                broken.append(f"{path.name}: {link}")
            if address.scheme:
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            anchor = unquote(address.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{path.name}: {link}")
    assert broken == []


@pytest.mark.xdist_group("site")
def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r'<(?:script|img|link)[^>]*(?:src|href)="(https?:[^"]*)"')
    found = {url for path in site.rglob("*.html") for url in loaded.findall(path.read_text(encoding="utf-8"))}
    assert found == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_the_links_of_a_page_lead_to_files(page: Path) -> None:
    """As they are read in the sources, where nothing builds a site: each file is there, and each address is one."""
    for link in MARKDOWN_LINK.findall(page.read_text(encoding="utf-8")):
        if urlsplit(link).scheme:
            assert OUTSIDE.fullmatch(link), link
        elif where := urldefrag(link)[0]:
            assert (page.parent / where).exists(), link
