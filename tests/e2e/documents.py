"""Reads the commands out of the documents, and runs them as a reader would."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Final

__all__ = ["ROOT", "Command", "File", "Session", "matches", "pages", "steps"]

ROOT: Final = Path(__file__).parents[2]
START_SECONDS: Final = 300
COMMAND_SECONDS: Final = 300
READY: Final = "ready; Ctrl-C stops everything"
SHELLS: Final = {"console", "sh"}
PROGRAMS: Final = re.compile(
    r"(\$ )?(\.venv/bin/)?(sluice|kubectl|nats|make|docker|helm|python3?|pip|git|curl|runner)\s+\S"
)
"""How a line begins that is a command, whatever its block says that it is."""

WATCH_ENDED: Final = re.compile(r"[IW]\d{4} .* reflector\.go:\d+\] ")
"""What kubectl logs when a watch ends and it starts another, as it does beside a busy API server."""

PROGRESS: Final = re.compile(r"sluice: .+ \(\d+ s\)$")
"""What a command says on a terminal when it takes longer than a second, as on a slow machine."""

INDENTED: Final = re.compile(rf"    ({PROGRAMS.pattern})")


@dataclass(frozen=True, slots=True)
class File:
    """What a page tells its reader to write."""

    name: str
    text: str


@dataclass(slots=True)
class Command:
    """What it tells to run, and what that prints."""

    page: str
    number: int
    """Of the line."""

    line: str
    shown: list[str] | None = None
    """None: nothing is said about it. `…` stands for anything."""

    def __str__(self) -> str:
        return f"{self.page}:{self.number}: $ {self.line}"


def pages() -> list[Path]:
    """All documents that a reader may follow, tutorials first: the others use what these made."""
    found = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]
    first = ROOT / "docs" / "tutorial"
    return sorted(
        found, key=lambda path: (path.parent != first, path != first / "first-steps.md", path)
    )


def steps(path: Path) -> Iterator[File | Command]:
    """Files and commands of a page, in its order. Commands stand in blocks ``console`` or ``sh``.

    A block ``yaml`` below a line that is a file's name in backticks is that file. In ``console`` what stands
    below a command is what it prints. Raises `AssertionError` for a command in a block of another kind.
    """
    page = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
    name, block = "", None
    found: list[tuple[int, str]] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if block is None and line.startswith("```"):
            block, found = line[3:].strip(), []
        elif block is None:
            assert not INDENTED.match(line), f"{page}:{number}: put it into a block: {line}"
            named = re.fullmatch(r"`([\w.-]+\.yaml)`:", line)
            name = named[1] if named else (name if not line.strip() else "")
        elif line == "```":
            yield from _block(page, block, name, found)
            block, name = None, ""
        else:
            found.append((number, line))


def _block(
    page: str, kind: str, name: str, lines: list[tuple[int, str]]
) -> Iterator[File | Command]:
    if kind == "yaml" and name:
        yield File(name, "\n".join(line for _, line in lines) + "\n")
    elif kind == "console":
        yield from _console(page, lines)
    elif kind == "sh":
        for number, line in lines:
            if command := re.sub(r"\s{2,}#.*|^#.*", "", line).strip():
                yield Command(page, number, command)
    else:
        for number, line in lines:
            assert not PROGRAMS.match(line), f"{page}:{number}: say `sh` or `console`: {line}"


def _console(page: str, lines: list[tuple[int, str]]) -> Iterator[Command]:
    command: Command | None = None
    for number, line in lines:
        if line.startswith("$ "):
            if command is not None:
                yield command
            command = Command(page, number, line[2:], [])
        else:
            assert command is not None, f"{page}:{number}: output of nothing"
            assert command.shown is not None, number
            command.shown.append(line)
    if command is not None:
        yield command


def matches(shown: list[str], printed: list[str]) -> bool:
    """Whether that was printed, `…` standing for anything: within a line, or for any lines."""
    pattern = "".join(
        r"(?:.*\n)*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"
        for line in shown
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


@dataclass(slots=True)
class Session:
    """A reader's terminals: a folder, an environment, and `sluice dev` in one of them."""

    folder: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    dev: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Put the commands of this checkout before all others, and run `sluice dev`."""
        self.environment["PATH"] = f"{Path(sys.executable).parent}:{self.environment['PATH']}"
        self.environment["HOME"] = str(self.folder)
        # Pages name files of the checkout.
        (self.folder / "deploy").symlink_to(ROOT / "deploy")
        output = self.folder / "dev.log"
        with output.open("wb") as file:
            self.dev = subprocess.Popen(
                ["sluice", "dev", "--quiet", *options],
                cwd=self.folder,
                env=self.environment,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_SECONDS
        while READY not in output.read_text():
            assert self.dev.poll() is None, output.read_text()
            if time.monotonic() > deadline:
                raise TimeoutError(output.read_text())
            time.sleep(0.2)

    def write(self, file: File) -> None:
        """As the page says."""
        (self.folder / file.name).write_text(file.text)

    def run(self, line: str) -> tuple[int, list[str]]:
        """Exit status, and what a terminal would show."""
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self.environment[name] = Template(value).substitute(
                self.environment, PWD=str(self.folder)
            )
            return 0, []
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        shown = done.stdout.decode().splitlines()
        return done.returncode, [
            line for line in shown if not (WATCH_ENDED.match(line) or PROGRESS.match(line))
        ]

    def errors(self) -> list[str]:
        """What the services logged as errors, with the exceptions."""
        logs = sorted(self.folder.glob(".sluice/logs/*.log"))
        return [
            f"{log.name}: {line}".replace("\\n", "\n")
            for log in logs
            for line in log.read_text(errors="replace").splitlines()
            if '"level": "error"' in line
        ]

    def close(self) -> None:
        """Leave `sluice dev` as Ctrl-C does."""
        if self.dev is not None and self.dev.poll() is None:
            self.dev.send_signal(signal.SIGINT)
            self.dev.wait(timeout=COMMAND_SECONDS)
