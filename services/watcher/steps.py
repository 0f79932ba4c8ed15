"""Which states of an object nobody waits for: they may come a moment later, together with those that follow.

A Job that starts changes its status three or four times within a tenth of a second.
"""

from typing import Final

from shared.contracts.kube.bodies import Body, status_of
from shared.contracts.kube.kinds import WORKLOAD
from shared.contracts.messages.observed import Observed
from shared.integrations import Integrations

_URGENT: Final = ("uid", "generation", "deletionTimestamp", "labels")
"""Fields of the metadata that change with the spec, with what its user asks for, or with its end."""


def can_wait(integrations: Integrations, before: Observed, state: Observed) -> bool:
    """Whether what is new in the second of two states is a step on a job's way that gives no quota back.

    Of a Workload only what nobody decides by can wait: its finalizers and annotations.
    """
    old, new = before.body, state.body
    if state.deleted or old is None or new is None or not _is_same_spec(old, new):
        return False
    if state.plural == WORKLOAD.plural and state.group == WORKLOAD.group:
        return status_of(old) == status_of(new)
    integration = integrations.find(group=state.group, plural=state.plural)
    if integration is None or integration.finish(new) is not None:
        return False
    stopped = integration.held(new) and not integration.active(new)
    return not (stopped and integration.active(old))


def _is_same_spec(old: Body, new: Body) -> bool:
    before, after = old["metadata"], new["metadata"]
    return all(before.get(field) == after.get(field) for field in _URGENT)
