"""Records a command at a terminal as an SVG that plays in a browser: `recording.py FILE.svg COMMAND…`.

The command runs at a real terminal, and the SVG shows each line when the terminal showed it as it stayed. The recording is of
its lines, so the command must print one after the other, as `jlogtool demo` does. Pauses are cut to PAUSE_SECONDS. It begins
with the end, so that a page shows the result at once, and then plays from the start.

Other recorders do not give what the README needs, a drawing of text that follows dark screens: agg draws a GIF of asciinema's
recordings, and termtosvg is no longer maintained.
"""

from __future__ import annotations

import os
import pty
import shlex
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fcntl import ioctl
from html import escape
from itertools import groupby
from pathlib import Path
from subprocess import Popen
from termios import TIOCSWINSZ

import pyte

COLUMNS = 100
LINES_MAX = 200  # of the whole recording
LINES_SEEN = 28
PAUSE_SECONDS = 1.2
FIRST_SECONDS = 1.0
LAST_SECONDS = 12.0  # the end stays so long before the recording begins again
FIRST_END_SECONDS = 6.0  # and so long at first

CHARACTER = 7.83  # width and height of a character, in pixels of the drawing
ROW = 18
MARGIN = 16
BAR = 34

STYLE = """
.window { fill: #fbfbfc; stroke: #d0d4da; }
text { fill: #24292f; white-space: pre; }
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.bold { font-weight: 700; }
.typed { fill: #0a5fb4; font-weight: 700; }
.bar { fill: #6a737d; }
.red { fill: #b42318; }
.green { fill: #1a7f37; }
.magenta { fill: #8250df; }
.lines { animation: scroll var(--length) step-end var(--first) infinite; }
.line { animation: var(--length) step-end var(--first) infinite; }
@media (prefers-color-scheme: dark) {
  .window { fill: #14181d; stroke: #3a424c; }
  text { fill: #dde3ea; }
  .typed { fill: #7ab8ff; }
  .bar { fill: #97a1ac; }
  .red { fill: #ff8d82; }
  .green { fill: #6fdd8b; }
  .magenta { fill: #d2a8ff; }
}
"""
STILL = "@media (prefers-reduced-motion: reduce) { .line { animation: none; } .lines { animation: none; transform: %s; } }"


@dataclass(frozen=True)
class Line:
    """A line of the recording: its characters by style, and the second at which it is shown."""

    second: float
    parts: tuple[tuple[str, str], ...]


class Recorder:
    """A screen that is long enough to keep all lines, and the time at which each was shown as it stayed."""

    def __init__(self) -> None:
        self._screen = pyte.Screen(COLUMNS, LINES_MAX)
        self._stream = pyte.ByteStream(self._screen)
        self._seconds: dict[int, float] = {}

    def feed(self, shown: bytes) -> None:
        now = time.monotonic()
        self._screen.dirty.clear()
        self._stream.feed(shown)
        self._seconds.update(dict.fromkeys(self._screen.dirty, now))

    def lines(self) -> list[Line]:
        if self._screen.cursor.y == LINES_MAX - 1:
            raise SystemExit(f"recording: it has more than {LINES_MAX} lines")
        found, second, before = [], FIRST_SECONDS, min(self._seconds.values())
        for number in range(self._screen.cursor.y):
            shown = max(before, self._seconds.get(number, before))  # an empty line changes nothing
            second += min(shown - before, PAUSE_SECONDS)
            before = shown
            found.append(Line(second, tuple(self._parts(number))))
        return found

    def _parts(self, number: int) -> Iterator[tuple[str, str]]:
        cells = [self._screen.buffer[number][column] for column in range(COLUMNS)]
        for (bold, colour), run in groupby(cells, key=lambda cell: (cell.bold, cell.fg)):
            style = [name for name in ("bold" * bold, colour) if name and name != "default"]
            yield " ".join(style), "".join(cell.data for cell in run)


def record(command: list[str]) -> list[Line]:
    """Runs the command at a terminal of its own; a command that fails is not recorded."""
    ours, its = pty.openpty()
    ioctl(its, TIOCSWINSZ, struct.pack("HHHH", LINES_MAX, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    recorder = Recorder()
    with Popen(command, stdin=its, stdout=its, stderr=its, env=environment, start_new_session=True) as process:
        os.close(its)
        for shown in _read(ours):
            recorder.feed(shown)
    os.close(ours)
    if process.returncode != 0:
        raise SystemExit(f"recording: it ended with exit code {process.returncode}")
    return recorder.lines()


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            shown = os.read(terminal, 1 << 16)
        except OSError:  # EIO: the command has closed it
            return
        if not shown:
            return
        yield shown


DRAWING = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">
<title>A recording of {typed}</title>
<style>
{rules}
</style>
<rect class="window" x="0.5" y="0.5" width="{inner_width}" height="{inner_height}" rx="8"/>
<text class="bar" x="{margin}" y="22">{typed}, recorded; pauses are cut to {pause} s</text>
<svg x="{margin}" y="{bar}" width="{seen_width}" height="{seen_height}">
<g class="lines">
{lines}
</g>
</svg>
</svg>
"""


def draw(typed: str, lines: list[Line]) -> str:
    """The SVG. Each line has an animation of its own, as long as the recording; another one scrolls them."""
    lines = [Line(0.0, (("typed", f"$ {typed}"),)), *lines]
    length = lines[-1].second + LAST_SECONDS
    seen_width, seen_height = round(COLUMNS * CHARACTER), min(len(lines), LINES_SEEN) * ROW
    width, height = seen_width + 2 * MARGIN, BAR + seen_height + MARGIN
    timing = f"svg {{ --length: {length:.2f}s; --first: {FIRST_END_SECONDS - length:.2f}s; }}"
    still = STILL % _moved(len(lines))
    drawn = [f'<g class="line" style="animation-name: at{at}">{_text(at, line)}</g>' for at, line in enumerate(lines)]
    return DRAWING.format(
        width=width,
        height=height,
        inner_width=width - 1,
        inner_height=height - 1,
        seen_width=seen_width,
        seen_height=seen_height,
        typed=escape(typed),
        pause=PAUSE_SECONDS,
        margin=MARGIN,
        bar=BAR,
        rules="\n".join([timing, STYLE.strip(), *_keyframes(lines, length), still]),
        lines="\n".join(drawn),
    )


def _text(number: int, line: Line) -> str:
    parts = list(line.parts)
    while parts and not parts[-1][1].strip():
        parts.pop()
    if parts:
        parts[-1] = parts[-1][0], parts[-1][1].rstrip()
    drawn, column = [], 0
    for style, text in parts:
        if text.strip():
            # The width is stated, so that columns stand below each other in any font.
            place = f'x="{column * CHARACTER:.1f}" y="{number * ROW + 13}" textLength="{len(text) * CHARACTER:.1f}"'
            kind = f' class="{style}"' if style else ""
            drawn.append(f'<text {place} lengthAdjust="spacingAndGlyphs" xml:space="preserve"{kind}>{escape(text)}</text>')
        column += len(text)
    return "".join(drawn)


def _keyframes(lines: list[Line], length: float) -> Iterator[str]:
    scrolled = []
    for number, line in enumerate(lines):
        part = 100 * line.second / length
        yield f"@keyframes at{number} {{ 0% {{ visibility: hidden; }} {part:.3f}%, 100% {{ visibility: visible; }} }}"
        if number >= LINES_SEEN:
            scrolled.append(f"{part:.3f}% {{ transform: {_moved(number + 1)}; }}")
    yield f"@keyframes scroll {{ 0% {{ transform: none; }} {' '.join(scrolled)} 100% {{ transform: {_moved(len(lines))}; }} }}"


def _moved(lines: int) -> str:
    """The transformation with which the last of so many lines is the last that is seen."""
    return f"translateY(-{max(0, lines - LINES_SEEN) * ROW}px)"


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    target, command = sys.argv[1], sys.argv[2:]
    typed = shlex.join([os.path.basename(command[0]), *command[1:]])
    Path(target).write_text(draw(typed, record(command)), encoding="utf-8")


if __name__ == "__main__":
    main()
