"""`sluice dead retry` and `drop`: asks a service to try letters again, and gives letters up."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from services.ctl.admin.dead_reading import LETTERS, Letter, find_letters, in_order
from services.ctl.connect.bus import connected
from services.ctl.connect.progress import progress
from services.ctl.connect.reader import access_for, nats_url_of, utc_now
from shared.bus.follow import read, recall
from shared.bus.port import Bus, BusError, CaughtUp, Entry
from shared.contracts.messages.outcomes import DeadLetter, RetryRequest
from shared.contracts.subjects import Stream
from shared.runtime.command import CommandError, Exit

STORED_SECONDS: Final = 5.0
"""An acknowledgement comes at once, or never: a server does not say that a user may not write."""

WRITER_HINT: Final = "may this user of NATS write? `operator` may: see deploy/nats/permissions.yaml"


async def _open_letters(bus: Bus) -> list[Letter]:
    """All letters that nobody has closed, the oldest first."""
    found: dict[str, Letter] = {}

    def on_letter(letter: DeadLetter, entry: Entry) -> None:
        found[entry.subject] = Letter(number=entry.sequence, message=letter)

    await recall(bus, {DeadLetter: on_letter}, filters=[LETTERS])
    return in_order(found.values())


async def retry_letters(
    words: Sequence[str] | None, wait_seconds: float, *, url: str | None, directory: Path
) -> bool:
    """Ask the services to try letters again; return whether all succeeded, or none was waited for."""
    async with _bus(url, directory) as bus:
        letters = find_letters(await _open_letters(bus), words)
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
        with progress(
            f"waiting {wait_seconds:g} s at most for answers to {len(letters)} letter(s)"
        ):
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
        letters = find_letters(await _open_letters(bus), words)
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
        raise CommandError(Stream.DEAD, text, hint=WRITER_HINT, status=Exit.UNREACHABLE) from error


async def _answers(bus: Bus, letters: Sequence[Letter], seconds: float) -> dict[str, DeadLetter]:
    """What the services made of the letters within this time, by the letter's subject."""
    numbers = {letter.message.subject: letter.number for letter in letters}
    answers: dict[str, DeadLetter] = {}
    try:
        async with asyncio.timeout(seconds), aclosing(bus.watch(Stream.DEAD, LETTERS)) as items:
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
