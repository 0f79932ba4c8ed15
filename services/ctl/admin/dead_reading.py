"""Open dead letters as the quick client reads them: what `sluice dead list` and `dead show` print."""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from services.ctl.connect.reader import open_reader, utc_now
from services.ctl.get.table import Table, coloured
from shared.bus.stream_reader import Seen, StreamReader
from shared.contracts.kube.ages import duration
from shared.contracts.messages.admissions import HOLDING
from shared.contracts.messages.outcomes import DeadLetter
from shared.contracts.subjects import STREAM_OF, Stream, decode, join, subject_filter
from shared.runtime.command import CommandError, Exit

HEADER: Final = ("NUMBER", "SERVICE", "ABOUT", "AGE", "TRIES", "REASON")
LETTERS: Final = subject_filter("dead")
REASON_WIDTH: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter and its place in the log."""

    number: int
    message: DeadLetter

    @property
    def names(self) -> tuple[str, str, str, str]:
        """Sort, cluster, namespace and name of what it is about; empty where the subject says none."""
        tokens = [*self.message.original_subject.split("."), "", "", "", ""]
        try:
            cluster, namespace, name = (decode(token) or "" for token in tokens[2:5])
        except ValueError:
            return tokens[1], "", "", ""
        return tokens[1], cluster, namespace, name

    @property
    def about(self) -> str:
        """For people: ``admission hub team/job-train``."""
        sort, cluster, namespace, name = self.names
        return f"{sort} {cluster} {namespace}/{name}" if name else self.message.original_subject


def in_order(letters: Iterable[Letter]) -> list[Letter]:
    """Those that nobody has closed, the oldest first."""
    still_open = (letter for letter in letters if letter.message.state == "open")
    return sorted(still_open, key=lambda letter: letter.number)


async def _open_letters(reader: StreamReader) -> list[Letter]:
    """All letters that nobody has closed, the oldest first."""
    seen = await reader.now(DeadLetter.stream, LETTERS)
    return in_order(
        Letter(number=_number(each), message=message)
        for each in seen
        if (message := each.read(DeadLetter)) is not None
    )


def _number(seen: Seen) -> int:
    """Its sequence in the log."""
    return seen.log_sequence


async def show_list(*, as_json: bool, url: str | None, directory: Path) -> None:
    """Print the open letters."""
    async with open_reader(url, directory) as reader:
        letters = await _open_letters(reader)
    if as_json:
        print(json.dumps([_as_json(letter) for letter in letters], indent=4))
        return
    if not letters:
        print("No dead letters: every message was handled.")
        return
    now = utc_now()
    rows = [
        (
            str(letter.number),
            letter.message.service,
            letter.about,
            duration((now - letter.message.at).total_seconds()),
            str(letter.message.tries),
            _short(letter.message.reason),
        )
        for letter in letters
    ]
    print("\n".join(Table(HEADER, colours=coloured()).lines(rows)))


async def show_letters(word: str, *, as_json: bool, url: str | None, directory: Path) -> None:
    """Print the letters that `word` names, each with what is known of its workload now."""
    async with open_reader(url, directory) as reader:
        letters = find_letters(await _open_letters(reader), [word])
        if as_json:
            print(json.dumps([_as_json(letter) for letter in letters], indent=4))
            return
        texts = [
            "\n".join([*_lines(letter), *await _situation(reader, letter)]) for letter in letters
        ]
    print("\n\n".join(texts))


def find_letters(letters: Sequence[Letter], words: Sequence[str] | None) -> list[Letter]:
    """The letters that `words` name by number or by NAMESPACE/NAME; all for None.

    Raises `CommandError` for a word that names none.
    """
    if words is None:
        return list(letters)
    found: dict[int, Letter] = {}
    for word in words:
        named = [
            letter
            for letter in letters
            if word in {str(letter.number), "/".join(letter.names[2:]), letter.about}
        ]
        if not named:
            hint = "`sluice dead list` shows the open ones; a letter that was tried again has a new number"
            raise CommandError(
                f"letter {word}", "is not among the open letters", hint=hint, status=Exit.FAILED
            )
        found |= {letter.number: letter for letter in named}
    return [found[number] for number in sorted(found)]


def _as_json(letter: Letter) -> dict[str, Any]:
    """The letter, for programs."""
    return {"number": letter.number, **letter.message.model_dump(mode="json")}


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= REASON_WIDTH else f"{line[: REASON_WIDTH - 1]}…"


async def _situation(reader: StreamReader, letter: Letter) -> list[str]:
    """What is newer than the letter, what quota holds for its workload, and what to do."""
    sort, cluster, namespace, name = letter.names
    lines = []
    if (log := STREAM_OF.get(sort)) is not None:
        newest = await reader.now(log, letter.message.original_subject)
        if not newest:
            lines.append(
                "newest:    none: what it is about has ended; `sluice dead drop` forgets it"
            )
        elif (number := _number(newest[0])) > letter.message.original_sequence:
            lines.append(f"newest:    {log} {number}, which a retry handles instead")
    subject = join("admission", cluster, namespace, name)
    for seen in await reader.now(Stream.ADMISSIONS, subject):
        state, queue = str(seen.body.get("state")), seen.body.get("cluster_queue") or "-"
        holds = "holds quota" if state in HOLDING else "holds no quota"
        lines.append(f"quota:     {state} in {queue}: it {holds}")
    history = f"`sluice history {namespace}/{name}` tells what led to it"
    lines.append(f"next:      mend the cause, then `sluice dead retry {letter.number}`; {history}")
    return lines


def _lines(letter: Letter) -> list[str]:
    message = letter.message
    return [
        f"number:    {letter.number}",
        f"about:     {letter.about}",
        f"service:   {message.service}",
        f"at:        {message.at.isoformat(timespec='seconds')}",
        f"tries:     {message.tries}",
        f"message:   {message.original_subject}, sequence {message.original_sequence}",
        f"reason:    {message.reason}",
        f"body:      {_body(message)}",
    ]


def _body(message: DeadLetter) -> str:
    if message.encoding == "base64":
        size = len(base64.b64decode(message.body))
        return f"{size} bytes that are no text; -o json has them"
    return message.body or "empty"
