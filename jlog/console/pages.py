"""The pages of the console as HTML. Everything that comes from a journal is escaped here."""

from __future__ import annotations

import time
from datetime import timedelta
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import jlog
from jlog.console.records import Page, folded, headers_of, text_of, time_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STYLE = """
:root { color-scheme: light dark; --line: #d0d4da; --soft: #f3f5f7; --link: #0a5fb4; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --line: #3a424c; --soft: #20262d; --link: #7ab8ff; --bad: #ff8d82; } }
body { font: 15px system-ui, sans-serif; margin: 0 auto; max-width: 80rem; padding: 1rem; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; }
a { color: var(--link); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: 0.3rem 0.6rem; text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.value, pre { font: 13px ui-monospace, monospace; overflow-wrap: anywhere; white-space: pre-wrap; margin: 0; }
td.value { min-width: 6rem; }
form, nav { display: flex; flex-wrap: wrap; gap: 0.6rem; margin: 0.8rem 0; align-items: end; }
input, button { font: inherit; padding: 0.3rem 0.5rem; max-width: 100%; }
@media (min-width: 40em) { td.time { white-space: nowrap; } }
@media (max-width: 40em) {
  #records thead { display: none; }
  #records tr { display: block; border-bottom: 1px solid var(--line); padding: 0.4rem 0; }
  #records td { display: inline-block; border: 0; padding: 0 0.6rem 0 0; }
  #records td.value { display: block; min-width: 0; }
}
.bad { color: var(--bad); }
summary { cursor: pointer; }
"""
SCRIPT = """
const button = document.getElementById("follow"), rows = document.querySelector("#records tbody");
let source = null;
button.addEventListener("click", () => {
  if (source) { source.close(); source = null; }
  else {
    source = new EventSource(button.dataset.url);
    source.onmessage = event => {
      for (const cells of JSON.parse(event.data)) {
        const row = rows.insertRow(0);
        cells.forEach((text, at) => {
          const cell = row.insertCell();
          cell.textContent = text;
          cell.className = at === 0 ? "number" : at === 1 ? "time" : "value";
        });
      }
      while (rows.rows.length > 500) rows.deleteRow(-1);
    };
  }
  button.setAttribute("aria-pressed", String(source !== null));
  button.textContent = source ? "Stop following" : "Follow";
});
"""


def whole(title: str, body: str, head: str = "") -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="/console.css">{head}'
        f"</head><body>{body}</body></html>"
    )


def table(name: str, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML; a column is its heading and the class of its cells."""
    head = "".join(f'<th scope="col" class="{kind}">{heading}</th>' for heading, kind in columns)
    body = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{cell}</td>' for cell, (_, kind) in zip(row, columns, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table id="{name}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def address(path: str, **more: str | int) -> str:
    return escape("/journal?" + urlencode({"path": path, **more}, errors="surrogateescape"))


def printed(text: str) -> str:
    return escape(text_of(text.encode(errors="surrogateescape")))


def overview(paths: Iterable[str]) -> str:
    numbers = ("records", "bytes", "writers", "subscribers", "largest lag", "oldest unread")
    columns = [("journal", ""), *((name, "number") for name in numbers)]
    rows = [summary(path) for path in paths]
    found = table("journals", columns, rows) if rows else "<p>There is no journal here.</p>"
    return whole("jlog", f"<h1>Journals</h1>{found}", '<meta http-equiv="refresh" content="5">')


def summary(path: str) -> list[str]:
    link = f'<a href="{address(path)}">{printed(path)}</a>'
    try:
        stats = jlog.Journal(path).stats()
    except (jlog.JournalError, OSError) as error:
        return [f'{link} <span class="bad">{printed(str(error))}</span>', *[""] * 6]
    positions = stats.subscribers.values()
    oldest = max((at.oldest_unread_seconds or 0.0 for at in positions), default=0.0)
    numbers = [stats.records, stats.size_bytes, stats.writers, len(positions), max((at.lag for at in positions), default=0)]
    return [link, *(f"{number:,}" for number in numbers), str(timedelta(seconds=round(oldest))) if oldest else ""]


def records(path: str, page: Page, start: str, grep: str) -> str:
    columns = (("sequence", "number"), ("time, UTC", "time"), ("key", "value"), ("value", "value"), ("headers", "value"))
    rows = [
        [
            str(record.sequence),
            escape(time_of(record)),
            escape(text_of(record.key)) if record.key is not None else "",
            value_of(record.value),
            escape(headers_of(record)),
        ]
        for record in page.records
    ]
    kept = {"grep": grep} if grep else {}
    links = [f'<a href="{address(path, start="begin", **kept)}">oldest</a>']
    if page.start > page.first:
        links.append(f'<a href="{address(path, start=max(page.first, page.start - 50), **kept)}">older</a>')
    if page.following < page.end:
        links.append(f'<a id="newer" href="{address(path, start=page.following, **kept)}">newer</a>')
    links.append(f'<a href="{address(path, start=max(page.first, page.end - 50), **kept)}">newest</a>')
    damage = "".join(f'<p class="bad">{printed(text)}</p>' for text in page.damage)
    follow = escape("/tail?" + urlencode({"path": path}, errors="surrogateescape"))
    body = (
        f'<p><a href="/">Journals</a></p><h1>{printed(path)}</h1>'
        f'<form action="/journal"><input type="hidden" name="path" value="{escape(path)}">'
        f'<label>from <input name="start" value="{escape(start)}" size="22"></label>'
        f'<label>matching <input name="grep" value="{escape(grep)}" size="16"></label><button>Show</button></form>'
        f"<p>A position is begin, end, a sequence, a checkpoint, or a time such as "
        f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}.</p>"
        f'<nav>{" ".join(links)}<button id="follow" aria-pressed="false" data-url="{follow}">Follow</button></nav>'
        f"<p>From {page.start:,} to before {page.following:,}. The journal has {page.first:,} to before {page.end:,}.</p>"
        f"{damage}"
        f"{table('records', columns, rows)}"
    )
    return whole(path, body, '<script src="/console.js" defer></script>')


def value_of(value: bytes | None) -> str:
    lines = folded(value)
    shown = escape(text_of(value))
    if lines is None:
        return shown
    return f"<details><summary>{shown[:120]}</summary><pre>{escape(lines)}</pre></details>"


def failure(text: str) -> str:
    return whole("jlog", f'<p><a href="/">Journals</a></p><p class="bad">{printed(text)}</p>')
