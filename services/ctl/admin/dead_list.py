"""Open dead letters as the quick client reads them, and the list that `sluice dead list` prints."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from services.ctl.connect.reader import open_reader, utc_now
from services.ctl.get.table import Table, coloured
from shared.bus.headers import source_sequence
from shared.contracts.kube.ages import duration
from shared.contracts.messages.outcomes import DeadLetter
from shared.contracts.subjects import ROOT, decode

HEADER: Final = ("NUMBER", "SERVICE", "ABOUT", "AGE", "TRIES", "REASON")
LETTERS: Final = f"{ROOT}.dead.>"
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


async def show_list(*, as_json: bool, url: str | None, directory: Path) -> None:
    """Print the open letters."""
    async with open_reader(url, directory) as reader:
        seen = await reader.now(DeadLetter.stream, LETTERS)
    found = []
    for each in seen:
        try:
            message = DeadLetter.model_validate(each.body)
        except ValidationError:
            continue  # Nobody can read it, nor can `sluice dead show`.
        number = source_sequence(each.headers) or each.sequence
        found.append(Letter(number=number, message=message))
    letters = in_order(found)
    if as_json:
        print(json.dumps([as_json_object(letter) for letter in letters], indent=4))
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


def as_json_object(letter: Letter) -> dict[str, Any]:
    """The letter, for programs."""
    return {"number": letter.number, **letter.message.model_dump(mode="json")}


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= REASON_WIDTH else f"{line[: REASON_WIDTH - 1]}…"
