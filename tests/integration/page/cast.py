"""`make cast`: what `sluice demo` prints, as it comes: an animated picture, and a file for asciinema.

Nothing of it is made up: each line has the time at which the demo printed it. Pauses are shortened, and the
picture begins again at its end. Who prefers no motion sees the last lines.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final, NamedTuple

FOLDER: Final = Path("docs/images")
COMMAND: Final = ("sluice", "demo", "--seed", "1")
COLUMNS: Final = 120
ROWS: Final = 34
PAUSE_MAX: Final = 1.0
"""Seconds that the picture waits for the next line at most."""

END_SECONDS: Final = 8.0
CHARACTER, LINE, MARGIN = 7.2, 17, 14
BYTES_MAX: Final = 60_000


class Line(NamedTuple):
    """One line of the output."""

    at: float
    """Seconds since the command began."""

    text: str


async def record(*command: str) -> list[Line]:
    """Run a command of ours to its end; return what it printed. Raises `RuntimeError` if it failed."""
    program = Path(sys.executable).parent.absolute() / command[0]
    with TemporaryDirectory() as folder:
        began = monotonic()
        child = await asyncio.create_subprocess_exec(
            program, *command[1:], cwd=folder, stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout is not None
        lines = [Line(0.0, f"$ {' '.join(command)}")]
        async for data in child.stdout:
            text = data.decode().rstrip().replace(folder, "/tmp/demo")
            lines.append(Line(monotonic() - began, text))
        if await child.wait():
            raise RuntimeError(f"{' '.join(command)} failed: {lines[-1].text}")
    return lines


def cast(lines: Sequence[Line]) -> str:
    """A file for asciinema, version 2."""
    head = {
        "version": 2,
        "width": COLUMNS,
        "height": ROWS,
        "title": lines[0].text.removeprefix("$ "),
    }
    events = ([round(line.at, 3), "o", f"{line.text}\r\n"] for line in lines)
    return "\n".join(json.dumps(each, ensure_ascii=False) for each in (head, *events)) + "\n"


def svg(lines: Sequence[Line]) -> str:
    """The picture: each line comes at its time, and the last `ROWS` of them are in sight."""
    shown = _shortened(lines)
    length = shown[-1].at + END_SECONDS
    width, height = COLUMNS * CHARACTER + 2 * MARGIN, ROWS * LINE + 2 * MARGIN

    def share(at: float) -> str:
        return f"{100 * at / length:.2f}%"

    def up(number: int) -> str:
        return f"transform:translateY({-LINE * max(0, number - ROWS)}px)"

    steps = {share(line.at): up(number) for number, line in enumerate(shown, start=1)}
    # Lines that come together appear together: one step and one rule for all of them.
    came: dict[str, list[str]] = {}
    for number, line in enumerate(shown):
        text = f'<text x="{MARGIN}" y="{MARGIN + LINE * (number + 0.75):.1f}">{escape(line.text)}</text>'
        came.setdefault(share(line.at), []).append(text)
    rules = [
        f"@keyframes c{number}{{0%{{opacity:0}}{at}{{opacity:1}}}}"
        f".c{number}{{animation:c{number} {length:.1f}s step-end infinite}}"
        for number, at in enumerate(came)
        if at != "0.00%"
    ]
    frames = "".join(f"{at}{{{how}}}" for at, how in steps.items())
    view = f'y="{MARGIN}" width="{width:.0f}" height="{height - 2 * MARGIN}"'
    box = f'viewBox="0 {MARGIN} {width:.0f} {height - 2 * MARGIN}"'
    groups = [
        f'<g class="c{number}">{"".join(texts)}</g>' for number, texts in enumerate(came.values())
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">',
            f"<title>What {escape(lines[0].text.removeprefix('$ '))} prints</title>",
            "<style>",
            "text{font:12px ui-monospace,'DejaVu Sans Mono',Menlo,monospace;fill:#e4edf1;white-space:pre}",
            f"#all{{{up(len(shown))};animation:scroll {length:.1f}s step-end infinite}}",
            f"@keyframes scroll{{{frames}}}",
            *rules,
            "@media(prefers-reduced-motion:reduce){#all,g{animation:none!important}}",
            "</style>",
            f'<rect width="{width:.0f}" height="{height}" rx="10" fill="#10181c"/>',
            f'<svg {view} {box}><g id="all">',
            *groups,
            "</g></svg></svg>",
            "",
        ]
    )


def _shortened(lines: Sequence[Line]) -> list[Line]:
    """The same without long pauses, and with times that a picture tells apart."""
    shown: list[Line] = []
    now = before = 0.0
    for line in lines:
        now += min(PAUSE_MAX, line.at - before)
        before = line.at
        shown.append(Line(round(now, 1), line.text[:COLUMNS]))
    return shown


async def main() -> int:
    """Record the demo, write both files."""
    lines = await record(*COMMAND)
    for name, content in (("demo.svg", svg(lines)), ("demo.cast", cast(lines))):
        assert len(content) <= BYTES_MAX, f"{name}: {len(content)} bytes are more than {BYTES_MAX}"
        await asyncio.to_thread((FOLDER / name).write_text, content)
        sys.stdout.write(f"{FOLDER / name}: {len(content) // 1000} kB, {len(lines)} lines\n")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
