"""What a tenant does to the Jobs of its running JobSet: to let them out, to add some, to make them anew."""

from typing import Final

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import QUEUE
from tests.attacks.field import TENANT, Act, Field, restarted, work
from tests.attacks.tenant_writes import START, owned

NOBODY: Final = "11111111-1111-4111-8111-111111111111"
ENDS: Final = ("deactivates", "deletes", "outlives")
"""What becomes of the JobSet then."""


async def _children(field: Field) -> list[Object]:
    jobs = await field.all(kinds.JOB)
    return [one for one in jobs if "runs-workers" in one["metadata"]["name"]]


async def _reference(field: Field, way: str) -> Object:
    """The metadata with which a Job of the running JobSet is its no more."""
    running = field.running["JobSet"]
    match way:
        case "to a JobSet that waits":
            return owned(await field.waiting("JobSet", "other"))
        case "to a JobSet without queue":
            free = work("JobSet", "free", "full")
            del free["metadata"]["labels"][QUEUE]
            free["spec"]["suspend"] = True
            return owned(await field.create(free))
        case "to one that never existed":
            return owned({**running, "metadata": {**running["metadata"], "uid": NOBODY}})
        case "to another name of it":
            return owned({**running, "metadata": {**running["metadata"], "name": "else"}})
        case "as controlled by nobody":
            return owned(running, controller=False)
        case _:
            return {"ownerReferences": None}


WAYS: Final = (
    *("to nobody", "as controlled by nobody", "to another name of it"),
    *("to a JobSet that waits", "to a JobSet without queue", "to one that never existed"),
)


def _leaving(way: str, end: str) -> Act:
    """Let the Jobs of the running JobSet out, so that its quota might be given back while they run."""

    async def act(field: Field) -> None:
        running = field.running["JobSet"]
        metadata = await _reference(field, way)
        for child in await _children(field):
            await field.patch(child, {"metadata": {"finalizers": ["example.com/keep"]}})
            await field.patch(child, {"metadata": metadata})
        await field.stage.settle(3)
        match end:
            case "deactivates":
                await field.patch(await field.workload(running), {"spec": {"active": False}})
            case "deletes":
                await field.delete(running)
            case _:
                await _outlive(field, running)
        await field.stage.settle(10)
        restarted(field)

    return act


async def _outlive(field: Field, running: Object) -> None:
    """Stop the Jobs, delete the JobSet, of which nothing runs then, and start the Jobs again."""
    children = await _children(field)
    for child in children:
        await field.patch(child, {"spec": {"suspend": True}})
    await field.stage.settle(5)
    await field.delete(running, "Orphan")
    await field.stage.settle(40)
    for child in children:
        await field.patch(child, START["Job"])


async def _makes_anew(field: Field) -> None:
    """Delete the Jobs of the running JobSet, and keep their pods: its controller makes the next ones."""
    for _ in range(3):
        for child in await _children(field):
            await field.delete(child, "Orphan")
        await field.stage.settle(5)
    restarted(field)


async def _adds(field: Field) -> None:
    """Create Jobs without queue that name the running JobSet."""
    for number in range(2):
        extra = work("Job", f"runs-workers-{number + 7}", "")
        extra["metadata"] |= {"labels": {}, **owned(field.running["JobSet"])}
        extra["metadata"]["namespace"] = TENANT
        extra["spec"]["suspend"] = False
        await field.create(extra)
    await field.stage.settle(10)
    restarted(field)


ROWS: Final[dict[str, Act]] = {
    **{
        f"gives the Jobs of a running JobSet {way} and {end} it": _leaving(way, end)
        for way in WAYS
        for end in ENDS
    },
    "adds Jobs without a queue to a running JobSet": _adds,
    "deletes the Jobs of a running JobSet and keeps their pods": _makes_anew,
}
