"""`sluice dead`: shows dead letters, asks a service to try one again, and gives letters up."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from services.ctl.admin.dead_list import LETTERS, Letter, as_json_object, in_order
from services.ctl.connect.bus import connected
from services.ctl.connect.reader import access_for, nats_url_of, utc_now
from shared.bus.follow import read, recall
from shared.bus.port import Bus, BusError, CaughtUp, Entry
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.messages.outcomes import DeadLetter, RetryRequest
from shared.contracts.subjects import join
from shared.runtime.command import CommandError, Exit

STORED_SECONDS: Final = 5.0
"""An acknowledgement comes at once, or never: a server does not say that a user may not write."""

WRITER_HINT: Final = "may this user of NATS write? `operator` may: see deploy/nats/permissions.yaml"
STREAM_OF: Final = {
    "workload": "WORKLOADS",
    "admission": "ADMISSIONS",
    "observed": "OBSERVED",
    "check": "CHECKS",
    "outcome": "OUTCOMES",
    "dispatch": "DISPATCHES",
    "home": "DISPATCHES",
    "host": "HOSTS",
    "spoke": "SPOKES",
    "standing": "SPOKES",
}
"""Second token of a subject to its log."""


async def _open_letters(bus: Bus) -> list[Letter]:
    """All letters that nobody has closed, the oldest first."""
    found: dict[str, Letter] = {}

    def on_letter(letter: DeadLetter, entry: Entry) -> None:
        found[entry.subject] = Letter(number=entry.sequence, message=letter)

    await recall(bus, {DeadLetter: on_letter}, filters=[LETTERS])
    return in_order(found.values())


def _find_letters(letters: Sequence[Letter], words: Sequence[str] | None) -> list[Letter]:
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


async def show_letters(word: str, *, as_json: bool, url: str | None, directory: Path) -> None:
    """Print the letters that `word` names, each with what is known of its workload now."""
    async with _bus(url, directory) as bus:
        letters = _find_letters(await _open_letters(bus), [word])
        if as_json:
            print(json.dumps([as_json_object(letter) for letter in letters], indent=4))
            return
        texts = ["\n".join([*_lines(letter), *await _situation(bus, letter)]) for letter in letters]
    print("\n\n".join(texts))


async def retry_letters(
    words: Sequence[str] | None, wait_seconds: float, *, url: str | None, directory: Path
) -> bool:
    """Ask the services to try letters again; return whether all succeeded, or none was waited for."""
    async with _bus(url, directory) as bus:
        letters = _find_letters(await _open_letters(bus), words)
        for letter in letters:
            await _stored(
                bus.publish(
                    RetryRequest(
                        cluster=letter.names[1],
                        service=letter.message.service,
                        original_subject=letter.message.original_subject,
                        tries=letter.message.tries,
                        at=utc_now(),
                    )
                )
            )
        if not wait_seconds or not letters:
            print(f"asked for {len(letters)} letter(s)")
            return True
        after = await _answers(bus, letters, wait_seconds)
    for letter in letters:
        print(f"{letter.about}: {_became(letter, after.get(letter.message.subject))}")
    return all(
        (answer := after.get(letter.message.subject)) is not None and answer.state == "handled"
        for letter in letters
    )


async def drop_letters(words: Sequence[str] | None, *, url: str | None, directory: Path) -> None:
    """Close letters, and remove them from the view."""
    async with _bus(url, directory) as bus:
        letters = _find_letters(await _open_letters(bus), words)
        for letter in letters:
            dropped = letter.message.closed("dropped", utc_now())
            sequence = await _stored(bus.publish(dropped, expect_subject=letter.number))
            try:
                await bus.purge(DeadLetter.stream, dropped.subject, up_to=sequence)
            except BusError as error:
                raise CommandError(letter.about, str(error), hint=WRITER_HINT) from error
            print(f"{letter.about}: dropped")
    if not letters:
        print("No dead letters: nothing to drop.")


# --- parts -------------------------------------------------------------------------------------------


@asynccontextmanager
async def _bus(url: str | None, directory: Path) -> AsyncIterator[Bus]:
    async with connected(nats_url_of(url, directory), access=access_for(url, directory)) as bus:
        yield bus


async def _stored(published: Any) -> int:
    """The sequence of what was published. Raises `CommandError` if it was not stored."""
    try:
        async with asyncio.timeout(STORED_SECONDS):
            return int(await published)
    except (BusError, TimeoutError) as error:
        text = str(error) or f"was not stored within {STORED_SECONDS:g} s"
        raise CommandError("DEAD", text, hint=WRITER_HINT, status=Exit.UNREACHABLE) from error


async def _answers(bus: Bus, letters: Sequence[Letter], seconds: float) -> dict[str, DeadLetter]:
    """What the services made of the letters within this time, by the letter's subject."""
    numbers = {letter.message.subject: letter.number for letter in letters}
    answers: dict[str, DeadLetter] = {}
    try:
        async with asyncio.timeout(seconds), aclosing(bus.watch("DEAD", LETTERS)) as items:
            async for item in items:
                if isinstance(item, CaughtUp) or item.subject not in numbers:
                    continue
                letter = read(item, DeadLetter)
                if letter is not None and item.sequence > numbers[item.subject]:
                    answers[item.subject] = letter
                    if len(answers) == len(numbers):
                        break
    except TimeoutError:
        pass
    return answers


def _became(letter: Letter, answer: DeadLetter | None) -> str:
    match answer:
        case None:
            return (
                f"no answer yet from {letter.message.service} of {letter.names[1]}; "
                "it tries as soon as it runs, and for as long as the cluster or a newer message keeps it"
            )
        case DeadLetter(state="open"):
            return f"gave up again (try {answer.tries}): {answer.reason}"
        case _:
            return answer.state


async def _situation(bus: Bus, letter: Letter) -> list[str]:
    """What is newer than the letter, what quota holds for its workload, and what to do."""
    sort, cluster, namespace, name = letter.names
    lines = []
    if (log := STREAM_OF.get(sort)) is not None:
        newest = await bus.latest(log, letter.message.original_subject)
        if newest is None:
            lines.append(
                "newest:    none: what it is about has ended; `sluice dead drop` forgets it"
            )
        elif newest.sequence > letter.message.original_sequence:
            lines.append(f"newest:    {log} {newest.sequence}, which a retry handles instead")
    subject = join("admission", cluster, namespace, name)
    admission = read(await bus.latest("ADMISSIONS", subject), Admission)
    if admission is not None:
        holds = "holds quota" if admission.state in HOLDING else "holds no quota"
        lines.append(
            f"quota:     {admission.state} in {admission.cluster_queue or '-'}: it {holds}"
        )
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
