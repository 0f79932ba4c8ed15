"""What the webhook knows of the cluster around it: from memory, and as long as NATS was there once.

Every replica follows the few kinds itself, since only one projects. What it has not read it does not
apply: a job is then created as its author wrote it, never refused.
"""

from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Final

import structlog

from services.classifier.projection.cluster_objects import Surroundings
from services.classifier.projection.policy import DEFAULT_POLICY, Policy
from services.classifier.webhook.mutation import Place
from shared.bus.port import Bus, CaughtUp
from shared.contracts.kube.kinds import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    INTEGRATION,
    LOCAL_QUEUE,
    NAMESPACE,
    WORKLOAD_PRIORITY_CLASS,
    Kind,
    Object,
)
from shared.contracts.kube.names import DEFAULT_PRIORITY, DEFAULT_PRIORITY_CLASS, DEFAULT_QUEUE
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.spokes import MANAGER
from shared.contracts.subjects import observed_filter
from shared.integrations import Integrations

__all__ = ["Vicinity"]

log = structlog.get_logger(__name__)

_KINDS: Final = (
    INTEGRATION,
    NAMESPACE,
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    ADMISSION_CHECK,
    WORKLOAD_PRIORITY_CLASS,
)


class Vicinity:
    """Answers what holds for jobs that are created in a namespace."""

    def __init__(
        self, *, cluster: str, policy: Policy = DEFAULT_POLICY, job_default_queue: str = ""
    ) -> None:
        """`job_default_queue`: for jobs that name none in a namespace without a queue `default`."""
        self._cluster = cluster
        self._policy = policy
        self._job_default_queue = job_default_queue
        self._around = Surroundings()
        self._integrations = Integrations()
        self._multikueue: set[str] = set()
        """AdmissionChecks that send what they let in to other clusters."""

    @staticmethod
    def watched() -> tuple[Kind, ...]:
        """The kinds that it wants to hear of."""
        return _KINDS

    def take(self, observed: Observed) -> None:
        """Take in an object of the cluster."""
        if observed.plural == INTEGRATION.plural and observed.group == INTEGRATION.group:
            self._integrations.take(observed)
        elif observed.plural == ADMISSION_CHECK.plural:
            self._multikueue.discard(observed.name)
            if not observed.deleted and _sends_away(observed.object or {}):
                self._multikueue.add(observed.name)
        else:
            self._around.take(observed)

    def place(self, namespace: str) -> Place:
        """What holds for a job that is created in `namespace`."""
        labels = self._around.namespace_labels(namespace)
        there = self._around.local_queue(namespace, DEFAULT_QUEUE) is not None
        return Place(
            managed=self._policy.manages(namespace, labels),
            default_queue=DEFAULT_QUEUE if there else self._job_default_queue,
            holds_without_queue=self._policy.manage_without_queue,
            default_class=self._default_class(namespace),
            leads_elsewhere=partial(self._leads_elsewhere, namespace),
            integrations=self._integrations,
        )

    def _default_class(self, namespace: str) -> Callable[[str], str]:
        """Of a queue: the class that is for everybody, unless the queue has a priority of its own."""

        def of(queue: str) -> str:
            if self._around.workload_priority_class(DEFAULT_PRIORITY_CLASS) is None:
                return ""
            found = self._around.local_queue(namespace, queue) or {}
            annotations = (found.get("metadata") or {}).get("annotations") or {}
            return "" if DEFAULT_PRIORITY in annotations else DEFAULT_PRIORITY_CLASS

        return of

    def _leads_elsewhere(self, namespace: str, queue: str) -> bool:
        return not self._multikueue.isdisjoint(self._around.checks_of(namespace, queue))

    async def follow(self, bus: Bus) -> None:
        """Read what is there and what comes, until cancelled."""
        filters = [observed_filter(kind, self._cluster) for kind in _KINDS]
        async with aclosing(bus.watch("OBSERVED", *filters)) as items:
            async for item in items:
                if isinstance(item, CaughtUp):
                    continue
                try:
                    self.take(item.read(Observed))
                except UndecodableError as error:
                    log.warning("skipping what is unreadable", subject=item.subject, why=str(error))


def _sends_away(check: Object) -> bool:
    return (check.get("spec") or {}).get("controllerName") == MANAGER
