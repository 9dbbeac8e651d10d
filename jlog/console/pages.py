"""The pages of the console as HTML. Everything that comes from a journal is escaped here."""

from __future__ import annotations

import time
from datetime import timedelta
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jlog.console.curves import curve, line
from jlog.console.records import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jlog.console.records import Page
    from jlog.console.samples import Watched

NUMBERS = ("records", "bytes", "writers", "subscribers", "largest lag", "oldest unread", "records/s", "last hour")
GLANCE = "/glance"  # the part of the first page that the script asks for again
CARDS = ("journals", "subscribers", "checkpoints")  # tables of which a telephone shows each row as a card
PARTS = ("records", "state", "sql")  # the pages of one journal


def whole(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="/console.css">'
        f'<script src="/console.js" defer></script></head><body>{body}</body></html>'
    )


def table(name: str, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML; a column is its heading and the class of its cells."""
    head = "".join(f'<th scope="col" class="{kind}">{heading}</th>' for heading, kind in columns)
    kinds = [f'class="{kind}"' + (f' data-is="{heading}"' if name in CARDS else "") for heading, kind in columns]
    body = "".join(
        "<tr>" + "".join(f"<td {kind}>{cell}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>" for row in rows
    )
    kind = ' class="cards"' if name in CARDS else ""
    return f'<div class="wide"><table id="{name}"{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def address(page: str, path: str, **more: str | int) -> str:
    return escape(f"/{page}?" + urlencode({"path": path, **more}, errors="surrogateescape"))


def printed(text: str) -> str:
    return escape(text_of(text.encode(errors="surrogateescape")))


def field(name: str, value: str) -> str:
    return f'<input type="hidden" name="{name}" value="{escape(value)}">'


def headed(path: str, part: str) -> str:
    """Returns the beginning of a page about one journal."""
    links = [
        f'<a href="{address(other, path)}"{" aria-current=page" if other == part else ""}>'
        f"{'SQL' if other == 'sql' else other.capitalize()}</a>"
        for other in PARTS
    ]
    return f'<nav><a href="/">Journals</a> {" ".join(links)}</nav><h1>{printed(path)}</h1>'


def live(url: str, fragment: str) -> str:
    """Returns a part of a page that the script asks for again, some seconds apart."""
    return f'<div id="live" data-url="{url}">{fragment}</div>'


def overview(journals: Sequence[Watched]) -> str:
    return whole("jlog", f'<nav><a href="/" aria-current=page>Journals</a></nav>{live(GLANCE, glance(journals))}')


def glance(journals: Sequence[Watched]) -> str:
    columns = [("journal", "name"), *((name, "number") for name in NUMBERS)]
    return table("journals", columns, map(summary, journals)) if journals else "<p>There is no journal here.</p>"


def summary(watched: Watched) -> list[str]:
    link = f'<a href="{address("records", watched.path)}">{printed(watched.path)}</a>'
    seen, looks, rates = watched.seen, list(watched.looks), watched.rates()
    rate = f"{rates[-1][1]:,.0f}" if rates else ""
    if watched.error:
        return [f'{link} <span class="bad">{printed(watched.error)}</span>', *[""] * len(NUMBERS)]
    if seen is None:
        many = [f"{looks[-1].end:,}", "", "", "very many"] if looks else ["…", "", "", ""]
        return [link, *many, "", "", rate, line(rates)]
    numbers = (seen.records, seen.size_bytes, seen.writers, seen.subscribers, seen.lag)
    age = str(timedelta(seconds=round(seen.oldest_unread_seconds))) if seen.oldest_unread_seconds else ""
    return [link, *("" if number is None else f"{number:,}" for number in numbers), age, rate, line(rates)]


def records(path: str, page: Page, start: str, grep: str) -> str:
    columns = (("sequence", "number"), ("time, UTC", "time"), ("key", "value"), ("value", "value"), ("headers", "value"))
    rows = [
        [row.sequence, escape(row.time), escape(row.key), folding(row.value, row.folded), escape(row.headers)]
        for row in page.rows
    ]
    kept = {"grep": grep} if grep else {}
    links = [f'<a href="{address("records", path, start="begin", **kept)}">oldest</a>']
    if page.start > page.first:
        links.append(f'<a href="{address("records", path, start=max(page.first, page.start - 50), **kept)}">older</a>')
    if page.following < page.end:
        links.append(f'<a id="newer" href="{address("records", path, start=page.following, **kept)}">newer</a>')
    links.append(f'<a href="{address("records", path, start=max(page.first, page.end - 50), **kept)}">newest</a>')
    damage = "".join(f'<p class="bad">{printed(text)}</p>' for text in page.damage)
    body = (
        f"{headed(path, 'records')}"
        f'<form action="/records">{field("path", path)}'
        f'<label>from <input name="start" value="{escape(start)}" size="22"></label>'
        f'<label>matching <input name="grep" value="{escape(grep)}" size="16"></label><button>Show</button></form>'
        f"<p>A position is begin, end, a sequence, a checkpoint, an age such as 10m or 1h, or a time such as "
        f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}.</p>"
        f"<nav>{' '.join(links)}"
        f'<button id="follow" aria-pressed="false" data-url="{address("tail", path)}">Follow</button></nav>'
        f'<p id="span">{"Newest first: sequences" if page.is_newest else "Sequences"} {span(page.start, page.following)}. '
        f"There are {span(page.first, page.end)}.</p>"
        f"{damage}"
        f"{table('records', columns, rows)}"
    )
    return whole(path, body)


def span(first: int, end: int) -> str:
    return f"{first:,} to {end - 1:,}" if first < end else "none"


def folding(shown: str, lines: str | None) -> str:
    if lines is None:
        return escape(shown)
    return f"<details><summary>{escape(shown[:120])}</summary><pre>{escape(lines)}</pre></details>"


def state(watched: Watched, lists: str) -> str:
    path = watched.path
    return whole(path, f"{headed(path, 'state')}{live(address('curves', path), curves(watched))}{lists}")


def curves(watched: Watched) -> str:
    complaint = f'<p class="bad">{printed(watched.error)}</p>' if watched.error else ""
    rate = curve("Appended", watched.rates(), " records/s")
    return f'{complaint}<div class="curves">{rate}{curve("Largest lag", watched.lags(), " records")}</div>'


def sql(path: str, statement: str, parse: bool, found: dict[str, Any] | None) -> str:
    answer = ""
    if found and "error" in found:
        answer = f'<pre class="bad" id="error">{printed(found["error"])}</pre>'
    elif found:
        columns = [(escape(name), "value") for name in found["columns"]]
        more = f"<p>The first {len(found['rows'])} rows. There are more.</p>" if found["more"] else ""
        damage = f'<p class="bad">Left out at {found["damage"]} damaged places.</p>' if found["damage"] else ""
        answer = damage + more + table("answer", columns, ([escape(cell) for cell in row] for row in found["rows"]))
    body = (
        f"{headed(path, 'sql')}"
        f'<form action="/sql" method="post">{field("path", path)}'
        f'<label for="statement">Statement of DuckDB\'s SQL; this journal is the table <code>journal</code></label>'
        f'<textarea id="statement" name="statement" spellcheck="false">{escape(statement)}</textarea>'
        f'<label><input type="checkbox" name="parse" value="json"{" checked" if parse else ""}> '
        f"the fields of JSON objects are columns</label><button>Run</button></form>{answer}"
    )
    return whole(path, body)


def sign_in(text: str = "") -> str:
    complaint = f'<p class="bad">{escape(text)}</p>' if text else ""
    return whole(
        "jlog",
        f'<h1>This console asks for its token</h1>{complaint}<form action="/token" method="post">'
        '<label>token <input name="token" type="password" autocomplete="current-password" autofocus></label>'
        "<button>Sign in</button></form>",
    )


def failure(text: str) -> str:
    return whole("jlog", f'<nav><a href="/">Journals</a></nav><p class="bad">{printed(text)}</p>')
