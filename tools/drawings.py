"""Writes the drawings of the manual: `drawings.py [FOLDER]`, which is docs/drawings without an argument."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
FOLDER = DOCS / "drawings"
WIDTH = 640
NARROW = 400  # of a chart, which a telephone then shows whole
LINE = 17  # from one line of text to the next, in pixels
CHARACTER = {"title": 7.7, "": 7.1, "label": 6.5}  # width of a letter in a wide font, rounded up
STYLE = """\
.paper { fill: #ffffff; stroke: #d0d4da; }
.box { fill: #f3f5f7; stroke: #8a94a0; }
.memory { fill: #e4efff; stroke: #2f6fc4; }
.disk { fill: #fdf1dc; stroke: #b07a1c; }
.process { fill: #e5f5e8; stroke: #3d8a4e; }
.danger { fill: #fde8e6; stroke: #c04a3f; stroke-dasharray: 5 3; }
.arrow { stroke: #57606a; stroke-width: 1.5; fill: none; }
.tip { fill: #57606a; }
text { fill: #24292f; font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.title { font-weight: 600; }
.label { fill: #57606a; font-size: 12px; }
@media (prefers-color-scheme: dark) {
  .paper { fill: #14181d; stroke: #3a424c; }
  .box { fill: #20262d; stroke: #76818d; }
  .memory { fill: #14294a; stroke: #6ea8f5; }
  .disk { fill: #3a2b10; stroke: #d9a441; }
  .process { fill: #16321c; stroke: #6abf7b; }
  .danger { fill: #3f1c19; stroke: #e5776b; }
  .arrow { stroke: #a3adb8; }
  .tip { fill: #a3adb8; }
  text { fill: #e6ebf0; }
  .label { fill: #a3adb8; }
}"""


class Drawing:
    """Boxes with text, and arrows between points. Places and sizes are pixels."""

    def __init__(self, title: str, height: int, width: int = WIDTH) -> None:
        self._title = title
        self._height = height
        self._width = width
        self._parts: list[str] = []

    def box(self, x: int, y: int, width: int, height: int, title: str, *lines: str, kind: str = "box") -> None:
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')
        first = y + (height - LINE * (1 + len(lines))) // 2 + 13
        for number, text in enumerate((title, *lines)):
            self._text(x + width // 2, first + number * LINE, text, "" if number else "title", width)

    def label(self, x: int, y: int, *lines: str) -> None:
        for number, text in enumerate(lines):
            self._text(x, y + number * LINE, text, "label")

    def arrow(self, *points: tuple[int, int]) -> None:
        """Along the points, with its tip at the last."""
        path = " ".join(f"{x},{y}" for x, y in points)
        self._parts.append(f'<polyline class="arrow" points="{path}" marker-end="url(#tip)"/>')

    def bar(self, y: int, name: str, length: int, figure: str, kind: str) -> None:
        """The name stands above the bar."""
        self._text(16, y, name, "title" if kind == "process" else "")
        self._parts.append(f'<rect class="{kind}" x="16" y="{y + 6}" width="{length}" height="14" rx="3"/>')
        self._text(16 + length + 8, y + 17, figure, "label")

    def svg(self) -> str:
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" role="img">'
        tip = (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path class="tip" d="M0,0 L8,4 L0,8 z"/></marker></defs>'
        )
        paper = f'<rect class="paper" x="0.5" y="0.5" width="{self._width - 1}" height="{self._height - 1}" rx="8"/>'
        title = f"<title>{escape(self._title)}</title>"
        return "\n".join([head, title, f"<style>\n{STYLE}\n</style>", tip, paper, *self._parts, "</svg>", ""])

    def _text(self, x: int, y: int, text: str, kind: str, width: int | None = None) -> None:
        """Around x, with a width that it must fit into; without one from x on."""
        room = self._width - x if width is None else width
        if len(text) * CHARACTER[kind] > room:
            raise ValueError(f"{text!r} is wider than {room} pixels")
        place = f'x="{x}" y="{y}"' + ("" if width is None else ' text-anchor="middle"')
        style = f' class="{kind}"' if kind else ""
        self._parts.append(f"<text{style} {place}>{escape(text)}</text>")


def directory() -> Drawing:
    """The files of the directory, in the order of the records."""
    found = Drawing("The directory of a journal: segments, the pre-commit buffer, and positions that point into them", 380)
    for x, name in ((180, "writer"), (330, "writer"), (480, "writer")):
        found.box(x, 16, 120, 32, name, kind="process")
        found.arrow((x + 60, 48), (x + 60 if x == 480 else 500, 92))
    found.label(24, 36, "processes append")
    for x, name, text in ((24, "0.seg", "sealed"), (164, "1000.seg", "sealed"), (304, "2000.seg", "open")):
        found.box(x, 96, 124, 60, name, text, "with its index" if text == "sealed" else "takes the blocks", kind="disk")
        found.arrow((x + 124, 126), (x + 140, 126))
    found.box(448, 96, 168, 60, "precommit", "the newest records, in", "memory that all map", kind="memory")
    found.box(24, 206, 170, 48, "checkpoints/noon", "the number 400", kind="box")
    found.arrow((86, 206), (86, 160))
    found.box(214, 206, 190, 48, "subscribers/billing", "the number 1700", kind="box")
    found.arrow((260, 206), (260, 160))
    found.box(424, 206, 192, 48, "subscribers/search", "the number 2950", kind="box")
    found.arrow((530, 206), (530, 160))
    found.label(24, 278, "A segment is removed when every subscriber and checkpoint has passed it. Here noon keeps all.")
    for x, name, text in (
        (24, "journal.meta", "identity, options"),
        (176, "bounds", "what is durable"),
        (328, "lock", "the live writers"),
        (480, "quarantine/", "torn or bad bytes"),
    ):
        found.box(x, 302, 136, 54, name, text, kind="disk")
    return found


def append() -> Drawing:
    """The steps of an append, and what a kill leaves at each."""
    found = Drawing("The way of an append: lock, copy, one store that publishes, and what happens to full blocks", 470)
    steps = (
        ("append(value)", "takes the append lock", "process"),
        ("The record is copied", "into the open block of the buffer", "memory"),
        ("One 64-bit store publishes it", "bytes used in the block, and their CRC", "memory"),
        ("The lock is free again", "readers that sleep are woken", "process"),
        ("append returns the sequence", "the record survives the process", "process"),
    )
    for number, (title, text, kind) in enumerate(steps):
        y = 20 + number * 90
        found.box(24, y, 300, 52, title, text, kind=kind)
        if number:
            found.arrow((174, y - 38), (174, y - 2))
    found.box(380, 88, 236, 52, "Killed up to here:", "the record does not exist", kind="danger")
    found.arrow((380, 114), (350, 114), (350, 182), (180, 182))
    found.box(380, 262, 236, 52, "Killed from here on:", "the whole record exists", kind="danger")
    found.arrow((380, 288), (350, 288), (350, 274), (180, 274))
    found.label(
        380,
        172,
        "If the block is full, the next one is",
        "opened first. The full one is written to",
        "its segment after the lock is released.",
    )
    found.label(
        380, 350, 'With sync="append", the call waits', "here for an fdatasync, which all that", "wait at the same time share."
    )
    found.arrow((376, 366), (328, 330))
    return found


def recovery() -> Drawing:
    """The steps of a writer that opens the journal."""
    found = Drawing("Recovery: what a writer finds when it opens a journal, and what it does", 500)
    found.box(190, 16, 260, 40, "A writer opens the journal", kind="process")
    found.arrow((320, 56), (320, 88))
    found.box(190, 92, 260, 52, "Does another writer live?", "its lock in the file lock says so")
    found.label(468, 112, "yes")
    found.arrow((450, 118), (520, 118), (520, 176))
    found.box(424, 180, 192, 70, "It joins", "and takes over locks", "of dead writers", kind="process")
    found.label(328, 166, "no")
    found.arrow((320, 144), (320, 190), (262, 190))
    found.box(24, 166, 236, 52, "Is the buffer of this boot?", "its control page names the boot")
    found.label(150, 234, "yes: processes", "were killed")
    found.arrow((142, 218), (142, 258))
    found.box(
        24,
        262,
        236,
        88,
        "All records are in the buffer",
        "A half-done step is completed",
        "or undone. No acknowledged",
        "record is lost.",
        kind="memory",
    )
    found.label(300, 270, "no: the power was lost")
    found.arrow((260, 206), (290, 206), (290, 290), (330, 290))
    found.box(
        334,
        280,
        282,
        104,
        "Unsynced blocks are read",
        "Whole blocks are kept. Torn bytes go to",
        "quarantine/. Numbers go on after all",
        "that were given out: a gap.",
        kind="disk",
    )
    found.arrow((142, 350), (142, 430), (186, 430))
    found.arrow((475, 384), (475, 430), (454, 430))
    found.arrow((600, 250), (628, 250), (628, 448), (454, 448))
    found.box(190, 410, 260, 52, "Writing goes on", "readers have not been disturbed", kind="process")
    return found


def kafka() -> Drawing:
    """A mirror and a capture, each with its position beside the records."""
    found = Drawing("Delivery to Kafka and from it: the position is stored together with the records", 400)
    found.box(24, 24, 160, 64, "journal", "records from 0 on", kind="disk")
    found.box(240, 24, 160, 64, "jlogtool mirror", "to-kafka", kind="process")
    found.arrow((184, 56), (238, 56))
    found.box(456, 20, 160, 72, "one transaction", "1,000 records, and", "the position after", kind="memory")
    found.arrow((400, 56), (454, 56))
    found.box(412, 136, 204, 64, "topic", "and the table of positions", kind="disk")
    found.arrow((536, 92), (536, 134))
    found.box(
        24,
        136,
        344,
        64,
        "Killed here: the transaction is aborted",
        "the next mirror reads the position there,",
        "shuts the old one out, and goes on there",
        kind="danger",
    )
    found.arrow((320, 134), (320, 92))
    found.box(412, 264, 204, 64, "jlogtool mirror", "from-kafka", kind="process")
    found.arrow((514, 200), (514, 262))
    found.box(214, 264, 154, 64, "one extend", "records, and their", "offsets as state", kind="memory")
    found.arrow((412, 296), (370, 296))
    found.box(24, 264, 146, 64, "journal", "the copy", kind="disk")
    found.arrow((214, 296), (172, 296))
    found.label(
        24,
        360,
        "Records and position become visible together, or not at all. So each record is there",
        "once, whichever process is killed.",
    )
    return found


def spark() -> Drawing:
    """Spark reads ranges of the journal; and its files become segments."""
    found = Drawing("Delivery to Spark and from it: tasks read ranges, and their files become segments in one commit", 400)
    found.box(24, 40, 140, 64, "journal", "records 0 to 2999", kind="disk")
    for number, part in enumerate(("0 to 999", "1000 to 1999", "2000 to 2999")):
        y = 16 + number * 40
        found.box(224, y, 150, 32, f"task: {part}", kind="process")
        found.arrow((164, 72), (222, y + 16))
        found.arrow((374, y + 16), (434, 72))
    found.box(436, 40, 180, 64, "table", "Parquet, Delta, Iceberg", kind="disk")
    found.label(
        24,
        164,
        "Spark's checkpoint names the range of each batch before it is read. A batch that was killed is",
        "read again with the same range, and its rows count once.",
    )
    found.box(24, 226, 140, 64, "rows", "of a batch", kind="memory")
    for number in range(2):
        y = 218 + number * 44
        found.box(224, y, 150, 36, "task: one file", kind="process")
        found.arrow((164, 258), (222, y + 18))
        found.arrow((374, y + 18), (434, 258))
    found.box(436, 222, 180, 72, "the driver's commit", "takes over all files, and", "the batch's number", kind="memory")
    found.box(436, 330, 180, 48, "journal", "the files are segments", kind="disk")
    found.arrow((526, 294), (526, 328))
    found.label(
        24,
        334,
        "Of a task that ran twice, the commit takes one file. A batch",
        "whose number the journal has is not taken again.",
    )
    return found


Draw = Callable[[], Drawing]


def plain(name: str) -> str:
    return (
        name.replace("**", "")
        .replace("`", "")
        .replace(" for each record", " a record")
        .replace(", pre-commit buffer of 128 KiB", ", with its buffer")
    )


def comparison() -> Drawing:
    """Bars for the column "write" of docs/comparisons.md; of a range, the greatest value."""
    table = (DOCS / "comparisons.md").read_text(encoding="utf-8").partition("| million records/s |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in table.splitlines()[2:]]
    figures = {plain(name): max(map(float, re.findall(r"[\d.]+", figure))) for name, figure in rows}
    del figures["jlog, 1,000 a call"]
    title = "Million records a second that one process writes, with jlog and with others"
    found = Drawing(title, 48 + 40 * len(figures), NARROW)
    found.label(16, 24, "million records of 100 bytes a second, by one process")
    for number, (name, figure) in enumerate(sorted(figures.items(), key=lambda item: -item[1])):
        kind = "process" if name.startswith("jlog") else "box"
        found.bar(54 + 40 * number, name, max(2, round(figure / max(figures.values()) * 320)), f"{figure:g}", kind)
    return found


DRAWINGS: tuple[Draw, ...] = (directory, append, recovery, kafka, spark, comparison)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(exist_ok=True)
    for draw in DRAWINGS:
        (folder / f"{draw.__name__}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
