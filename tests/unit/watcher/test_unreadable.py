"""A message that nobody can read under the subject of an object: the next watcher says the object again."""

import asyncio

from shared.bus.headers import TYPE
from shared.contracts.kube.kinds import JOB
from shared.contracts.messages.base import SCHEMA_VERSION, UndecodableError
from shared.contracts.messages.observed import Observed
from tests.unit.watcher.harness import Harness, run_harness


def of_jobs(harness: Harness) -> list[Observed | None]:
    """Every message about a Job, oldest first; None for one that cannot be read."""
    found: list[Observed | None] = []
    for entry in harness.log():
        if entry.subject.endswith(JOB.detail):
            try:
                found.append(entry.read(Observed))
            except UndecodableError:
                found.append(None)
    return found


async def hidden_job(harness: Harness) -> None:
    """A job whose last message nobody can read, and no watcher."""
    await harness.job("j")
    await harness.start()
    await asyncio.sleep(5)
    await harness.kill()
    subject = next(entry.subject for entry in harness.log() if entry.subject.endswith(JOB.detail))
    harness.server.publish(subject, b'{"what": "ever"', {})


def test_unchanged_object_behind_an_unreadable_message_is_published_again() -> None:
    async def drive(harness: Harness) -> None:
        await hidden_job(harness)
        await harness.start()
        await asyncio.sleep(60)
        first, garbage, again = of_jobs(harness)
        assert garbage is None
        assert first is not None
        assert again is not None
        assert (again.uid, again.resource_version) == (first.uid, first.resource_version)
        await harness.kill()
        await harness.start()
        await asyncio.sleep(60)
        assert len(of_jobs(harness)) == 3, "once is enough"

    run_harness(drive)


def test_object_that_is_gone_gets_its_tombstone() -> None:
    async def drive(harness: Harness) -> None:
        await hidden_job(harness)
        await harness.delete("j")
        await harness.start()
        await asyncio.sleep(60)
        last = of_jobs(harness)[-1]
        assert last is not None
        assert last.deleted

    run_harness(drive)


def test_changed_object_behind_an_unreadable_message_is_published_as_it_is() -> None:
    async def drive(harness: Harness) -> None:
        await hidden_job(harness)
        await harness.touch("j", "yes")
        await harness.start()
        await asyncio.sleep(60)
        last = of_jobs(harness)[-1]
        assert last is not None
        assert last.object is not None
        assert last.object["metadata"]["labels"]["touched"] == "yes"

    run_harness(drive)


def test_unreadable_object_is_published_again_when_the_log_lost_its_messages() -> None:
    """The view still has the message that nobody can read, and the server the id of the one before."""

    async def drive(harness: Harness) -> None:
        await hidden_job(harness)
        await asyncio.sleep(1)  # Until the view has all of it.
        harness.server.stream(Observed.stream).truncate(0)
        await harness.start()
        await asyncio.sleep(60)
        (again,) = of_jobs(harness)
        assert again is not None

    run_harness(drive)


def test_list_comes_behind_the_next_object_of_a_name_that_only_a_newer_release_has_told() -> None:
    """Else the earlier job, which is all that this release can read, would be alive for who begins then."""

    async def drive(harness: Harness) -> None:
        made = await harness.job("j")
        await harness.start()
        await asyncio.sleep(5)
        await harness.kill()
        await harness.delete("j")
        later = await harness.job("j")
        [subject] = {one.subject for one in harness.log() if one.subject.endswith(JOB.detail)}
        harness.server.publish(subject, b"{}", {TYPE: Observed.type, SCHEMA_VERSION: "99"})
        before = harness.log()[-1].sequence
        await harness.start()
        await asyncio.sleep(60)
        told = [entry for entry in harness.log() if entry.sequence > before]
        order = [
            "synced" if entry.subject.endswith(".synced") else entry.read(Observed).uid
            for entry in told
            if entry.subject == subject or entry.subject.endswith(".synced")
        ]
        earlier, next_ = (one["metadata"]["uid"] for one in (made, later))
        assert order == [earlier, next_, "synced"]

    run_harness(drive)
