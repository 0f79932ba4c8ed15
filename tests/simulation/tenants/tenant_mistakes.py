"""Mistakes by which a tenant would run without quota, each as a replacement of one function.

`python -m tests.simulation.tenants.tenant_mistakes [first] [last] [word]` searches the seeds that find
each of them, or those with that word.
"""

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

from services.classifier.projection import projector
from services.classifier.projection.owners.membership import Membership
from services.classifier.projection.owners.naming import Naming
from services.classifier.projection.projector import Projector
from services.classifier.webhook import updates
from services.classifier.webhook.draft import MutationResult
from services.patcher.jobs.controller import JobController
from services.quota.wire import outbound
from services.simulator.scenarios import system
from services.simulator.scenarios.tenants.jobs import scale
from services.simulator.scenarios.tenants.load import ADVERSARY
from services.simulator.scenarios.tenants.workloads import activate, outlive
from shared.contracts.kube.names import ORIGIN, PREBUILT_WORKLOAD
from shared.contracts.refs import WorkloadRef
from shared.integrations import Integration, controller_uid, queue_of
from tests.simulation.mistakes import Mistake, search

LARGE = 50_000
"""Characters of an annotation."""

SLOWLY = 15.0
"""Seconds, longer than an honest tenant's work may start late."""

_is_ours = Membership.is_ours
_observe = Projector.observe
_stop = JobController.stop
_release = JobController.release


def believes_any_owner(self: Any, job: Any, integration: Any, ref: Any) -> bool:
    """Take a job for nested whatever controller it names: there may be none with that uid."""
    return not controller_uid(job) and _is_ours(self, job, integration, ref)


def believes_an_owner_that_waits(self: Any, job: Any, integration: Any, ref: Any) -> bool:
    """Take a job for nested if its controller exists, admitted or not."""
    is_nested = controller_uid(job) in self.by_uid
    return not is_nested and _is_ours(self, job, integration, ref)


def believes_that_all_controllers_make_jobs(*_: Any) -> bool:
    """Take what an admitted Job or run controls for a part of it."""
    return True


def believes_the_label(_self: Any, job: Any, _integration: Any, _ref: Any) -> bool:
    """Take a job for ours only while its label names a queue."""
    return bool(queue_of(job))


def is_content_with_counting(*_: Any, **__: Any) -> None:
    """Count what runs without admission, and stop none of it."""


def takes_the_end_of_a_pause_for_a_start(obj: Any, _integration: Any) -> MutationResult:
    """Let the user of a paused run start it."""
    return MutationResult(object=obj, patch=())


def fixes_nothing(*_: Any, **__: Any) -> None:
    """Let a tenant change what rules gave."""


def sees_no_growth(*_: Any) -> Iterator[str]:
    """Let a running job ask for more pods than it was given."""
    return iter(())


def forgets_whose_it_was(*_: Any) -> bool:
    """Take a Workload that outlives its job for its user's own, with the admission on record."""
    return False


def takes_over_any_workload(
    self: Any, job: Any, integration: Any, *_: Any, **__: Any
) -> WorkloadRef:
    """Give a job the Workload that its labels name, whoever has it."""
    own: WorkloadRef = self.own_ref(job, integration)
    labels = job["metadata"].get("labels") or {}
    name = labels.get(PREBUILT_WORKLOAD) if ORIGIN in labels else None
    return WorkloadRef(own.cluster, own.namespace, name) if name else own


async def stops_only_with_a_workload(self: Any, state: Any, admission: Any, workload: Any) -> None:
    """Stop a job only if its Workload is there and says whose it is."""
    owners = [] if workload is None else workload["metadata"].get("ownerReferences") or []
    if any(owner.get("controller") and owner["uid"] == state.uid for owner in owners):
        await _stop(self, state, admission, workload)


def sees_whatever_label(*_: Any) -> None:
    """Let a tenant take away the label by which a pod is seen."""


async def releases_behind_others(self: Any, state: Any, *more: Any, **how: Any) -> None:
    """Start nobody's job before what another tenant has was looked at."""
    others = [one for one in self.cache.admissions() if one.namespace == ADVERSARY]
    await asyncio.sleep(SLOWLY if others else 0.0)
    await _release(self, state, *more, **how)


def ends_of_a_large_object(self: Any, observed: Any) -> None:
    """End with an object that is larger than usual."""
    metadata = {} if observed.body is None else observed.body["metadata"]
    if any(len(text) > LARGE for text in (metadata.get("annotations") or {}).values()):
        raise MemoryError(observed.name)
    _observe(self, observed)


MISTAKES: dict[str, Mistake] = {
    "an owner that nobody looks for": Mistake(
        Membership, "is_ours", believes_any_owner, 6, "runs and holds no quota"
    ),
    "an owner without admission": Mistake(
        Membership, "is_ours", believes_an_owner_that_waits, 28, "runs and holds no quota"
    ),
    "an owner that makes no jobs": Mistake(
        Integration, "makes", believes_that_all_controllers_make_jobs, 6, "has priority"
    ),
    "a removed or empty queue label": Mistake(
        Membership, "is_ours", believes_the_label, 4, "runs and holds no quota"
    ),
    "running without admission": Mistake(
        outbound, "bypass_cause", is_content_with_counting, 6, "runs on though it is evicted"
    ),
    "the end of an own pause": Mistake(
        updates, "_held", takes_the_end_of_a_pause_for_a_start, 2, "nobody admitted it"
    ),
    "another priority": Mistake(system, "check_fixed", fixes_nothing, 5, "has priority"),
    "a Workload that its user changed": Mistake(
        JobController,
        "stop",
        stops_only_with_a_workload,
        5,
        "runs on though it is evicted",
        often=activate,
    ),
    "more pods than were admitted": Mistake(
        outbound, "_excess", sees_no_growth, 1, "runs more than it was given", often=scale
    ),
    "a Workload that outlives its job": Mistake(
        projector, "was_of_a_job", forgets_whose_it_was, 10, "any is free", often=outlive
    ),
    "a copy's labels": Mistake(
        Naming, "ref_of", takes_over_any_workload, 7, "runs and holds no quota"
    ),
    "a label by which a pod is seen": Mistake(
        updates, "_check_label", sees_whatever_label, 19, "is given back while it runs"
    ),
    "work of one tenant before that of another": Mistake(
        JobController, "release", releases_behind_others, 2, "of them beside room"
    ),
    "an object that a service ends of": Mistake(
        Projector, "observe", ends_of_a_large_object, 1, "ended by itself"
    ),
}
"""By what is believed."""


if __name__ == "__main__":
    search(MISTAKES, "tenants", sys.argv[1:])
