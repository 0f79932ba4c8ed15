"""Keeps a release that is on its way from coming behind the report that the cluster refuses it.

1. A replica sends the release of a job. It is on its way.
2. The work is delivered again, and another replica sends the same release. The API server refuses that one
   for good: somebody's webhook, a quota, a template that has become wrong.
3. The second replica says so, and quota gives away what that frees. Then the first release arrives, and is
   taken.

Therefore the job is marked before the refusal is told (`stop_marks`).
"""

from collections.abc import Awaitable, Callable
from functools import partial

from services.patcher.cluster.errors import is_transient_refusal
from services.patcher.cluster.writer import Writer
from services.patcher.jobs.groups import GroupController
from services.patcher.jobs.stop_marks import held_mark_patch
from shared.contracts.kube.bodies import Body
from shared.contracts.messages.admissions import Admission
from shared.integrations import Integration
from shared.integrations.groups import group_in
from shared.kube.port import NotFoundError, RefusedError


async def forbid_release(
    job: Body,
    admission: Admission,
    integration: Integration,
    *,
    writer: Writer,
    groups: GroupController,
    check: Callable[[], Awaitable[None]],
) -> None:
    """Mark a held job, so that no replica releases it by this decision.

    Raises `LaterError` if another replica has released it: then there is nothing to tell. `check` raises it
    if the decision is not the last one.
    """
    if integration.is_group:
        await groups.forbid(group_in(job), admission, check)
        return
    patch = partial(held_mark_patch, admission=admission, integration=integration)
    try:
        await writer.patch(integration.kind, job, patch, on_conflict=check)
    except NotFoundError:
        return
    except RefusedError as error:
        # Who refuses a mark refuses the other release, too, or a tenant has filled up the annotations.
        if is_transient_refusal(error):
            raise
