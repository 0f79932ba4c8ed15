"""What a tenant writes to push others out of the view, or itself out of sight: each a small story."""

from typing import Final

from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import TRACEPARENT_ANNOTATION
from tests.attacks.field import TENANT, Act, Field, restarted, work
from tests.attacks.tenant_writes import START

LARGE: Final = "x" * 100_000
JOBS: Final = 40
VIEW_BYTES: Final = 2 << 20
"""Of 40 large Jobs half fit; of what the others have, all."""


def _large(number: int) -> Object:
    job = work("Job", f"large-{number}", "", namespace=TENANT)
    del job["metadata"]["labels"]
    job["spec"]["suspend"] = True
    job["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A", "value": LARGE}]
    return job


def _shrink(field: Field) -> None:
    """Let the view have room for no more."""
    view = field.stage.system.server.view("OBSERVED")
    view._bytes_max = VIEW_BYTES


async def deletes_large_jobs(field: Field) -> None:
    """Make and delete more than the view holds, and have services forget what they knew."""
    _shrink(field)
    for number in range(JOBS):
        made = await field.create(_large(number))
        await field.stage.settle(1)
        await field.delete(made)
    await field.stage.settle(10)
    restarted(field, "classifier", "quota", "watcher")
    await field.stage.settle(10)


async def hides_behind_a_trace_context(field: Field) -> None:
    """Write a trace context that is too large for a header, and run without, or with more than is counted."""
    context = {"metadata": {"annotations": {TRACEPARENT_ANNOTATION: LARGE}}}
    waiting = await field.waiting("Job")
    await field.patch(waiting, context, START["Job"])
    await field.patch(field.running["Job"], context, {"spec": {"parallelism": 7}})


WAYS: Final[dict[str, Act]] = {
    "fills the view with large Jobs that are gone": deletes_large_jobs,
    "hides a Job behind a trace context": hides_behind_a_trace_context,
}
