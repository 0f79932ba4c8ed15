"""Keeps what mutation must know of each namespace, from OBSERVED and ADMISSIONS.

Every replica follows these kinds itself, because only one replica projects. The webhook answers from
this memory, also while NATS is away. A default that it has not read is not applied: the job is then
created as its author wrote it, never refused.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Final

import structlog

from services.classifier.projection.cluster_objects import ClusterObjects
from services.classifier.projection.policy import DEFAULT_POLICY, Policy
from services.classifier.webhook.context import NamespaceContext
from shared.bus.follow import follow
from shared.bus.port import Bus, Entry, LogChangedError
from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.kube.bodies import annotations_of, spec_of
from shared.contracts.kube.kinds import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    INTEGRATION,
    LOCAL_QUEUE,
    NAMESPACE,
    WORKLOAD_PRIORITY_CLASS,
    Kind,
)
from shared.contracts.kube.names import DEFAULT_PRIORITY, DEFAULT_PRIORITY_CLASS, DEFAULT_QUEUE
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.observed import Observed
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import observed_filter, subject_filter
from shared.integrations import Integrations

_KINDS: Final = (
    INTEGRATION,
    NAMESPACE,
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    ADMISSION_CHECK,
    WORKLOAD_PRIORITY_CLASS,
)

log = structlog.get_logger(__name__)


class NamespaceDefaults:
    """Answers which policies and defaults hold for jobs created in a namespace."""

    def __init__(
        self,
        *,
        cluster: str,
        policy: Policy = DEFAULT_POLICY,
        job_default_queue: str = "",
        patchers: Iterable[str] = (),
        request_editors: Iterable[str] = (),
    ) -> None:
        """`job_default_queue`: of jobs that name none, where the namespace has no queue `default`.

        `patchers`: names of the users that start what is admitted; none: nobody's start is refused.
        `request_editors`: users and groups that may change what a waiting PipelineRun asks for.
        """
        self._cluster = cluster
        self._policy = policy
        self._job_default_queue = job_default_queue
        self._cluster_objects = ClusterObjects()
        self._integrations = Integrations()
        self._patchers = frozenset(patchers)
        self._request_editors = frozenset(request_editors)
        self._knows_decisions = False
        self._admitted: dict[WorkloadRef, str] = {}
        """Each admitted workload to the uid of its job."""

        self._admitted_names: dict[tuple[str, str], str] = {}
        """Namespace and uid of each job in `_admitted` to the name of its workload."""

        self._admitted_kinds: Counter[tuple[str, str]] = Counter()
        """How many of them there are, by namespace and lower-case kind."""

        self._multikueue_checks: set[str] = set()
        """Names of the AdmissionChecks whose controller is MultiKueue."""

    @staticmethod
    def watched() -> tuple[Kind, ...]:
        """The kinds to observe."""
        return _KINDS

    def observe(self, observed: Observed) -> None:
        """Apply one observation of an object."""
        if observed.plural == INTEGRATION.plural and observed.group == INTEGRATION.group:
            self._integrations.observe(observed)
        elif observed.plural == ADMISSION_CHECK.plural:
            self._multikueue_checks.discard(observed.name)
            controller = spec_of(observed.body).get("controllerName")
            if not observed.deleted and controller == MULTIKUEUE:
                self._multikueue_checks.add(observed.name)
        else:
            self._cluster_objects.observe(observed)

    def observe_admission(self, admission: Admission) -> None:
        """Apply one decision: what is admitted covers what it controls."""
        ref, namespace = admission.ref, admission.namespace
        if (before := self._admitted.pop(ref, None)) is not None:
            self._admitted_names.pop((namespace, before), None)
            self._admitted_kinds[namespace, _kind_of(ref.name)] -= 1
        if admission.state == "admitted" and not admission.unplanned:
            self._admitted[ref] = admission.uid
            self._admitted_names[namespace, admission.uid] = admission.name
            self._admitted_kinds[namespace, _kind_of(admission.name)] += 1

    def on_decisions_read(self) -> None:
        """Every decision so far was applied: what is not among them is not admitted."""
        self._knows_decisions = True

    def context(self, namespace: str) -> NamespaceContext:
        """Return what holds for a job that is created in `namespace`."""
        labels = self._cluster_objects.namespace_labels(namespace)
        exists = self._cluster_objects.local_queue(namespace, DEFAULT_QUEUE) is not None
        return NamespaceContext(
            managed=self._policy.manages(namespace, labels),
            default_queue=DEFAULT_QUEUE if exists else self._job_default_queue,
            manage_without_queue=self._policy.manage_without_queue,
            default_priority_class=partial(self._default_priority_class, namespace),
            uses_multikueue=partial(self._uses_multikueue, namespace),
            is_admitted=partial(self._is_admitted, namespace),
            is_admitted_as=partial(self._is_admitted_as, namespace),
            has_admitted=partial(self._has_admitted, namespace),
            knows_decisions=self._knows_decisions,
            patchers=self._patchers,
            request_editors=self._request_editors,
            integrations=self._integrations,
        )

    def _is_admitted(self, namespace: str, uid: str) -> bool:
        return (namespace, uid) in self._admitted_names

    def _is_admitted_as(self, namespace: str, uid: str, kind: str) -> bool:
        return _kind_of(self._admitted_names.get((namespace, uid), "")) == kind.lower()

    def _has_admitted(self, namespace: str, kind: str) -> bool:
        return self._admitted_kinds[namespace, kind.lower()] > 0

    def _default_priority_class(self, namespace: str, queue: str) -> str:
        """The cluster's default class, unless the queue has a default priority of its own."""
        if self._cluster_objects.workload_priority_class(DEFAULT_PRIORITY_CLASS) is None:
            return ""
        own = annotations_of(self._cluster_objects.local_queue(namespace, queue))
        return "" if DEFAULT_PRIORITY in own else DEFAULT_PRIORITY_CLASS

    def _uses_multikueue(self, namespace: str, queue: str) -> bool:
        checks = self._cluster_objects.admission_checks_of(namespace, queue)
        return not self._multikueue_checks.isdisjoint(checks)

    async def follow(self, bus: Bus) -> None:
        """Observe present and future objects, until cancelled."""
        filters = [observed_filter(kind, self._cluster) for kind in _KINDS]
        admissions = [subject_filter("admission", self._cluster)]
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(follow(bus, {Observed: self._on_observed}, filters=filters))
                    group.create_task(
                        follow(
                            bus,
                            {Admission: self._on_admission},
                            filters=admissions,
                            on_caught_up=self.on_decisions_read,
                        )
                    )
            except* LogChangedError as errors:
                # The webhook goes on answering with what it knows, until it knows better.
                log.warning("reading the streams again", because=str(errors.exceptions[0]))

    def _on_admission(self, admission: Admission, _entry: Entry) -> None:
        self.observe_admission(admission)

    def _on_observed(self, observed: Observed, _entry: Entry) -> None:
        self.observe(observed)


def _kind_of(name: str) -> str:
    """Return the lower-case kind of a job, with which the name of its workload begins."""
    return name.partition("-")[0]
