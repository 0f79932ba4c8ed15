"""Turns what is observed of the objects of a group into observations of the group. Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from shared.contracts.kube.bodies import Body, annotations_of
from shared.contracts.kube.names import GROUP_WORKLOAD
from shared.contracts.kube.numbers import whole_number
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import Finish, WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.integrations import Integration, Integrations
from shared.integrations.groups import Group, Groups, grouped

_TRUE: Final = "true"

Read = tuple[Observed, Integration]
"""An observation, and the Integration that reads its object."""


class _GroupRecord(NamedTuple):
    """What a group keeps although its objects come and go."""

    uid: str
    """That of the first object that was seen of it."""

    created: str
    complete: bool
    finish: Finish | None


class GroupedJobs:
    """The groups of one cluster."""

    def __init__(
        self,
        cluster: str,
        published: dict[WorkloadRef, WorkloadState],
        integrations: Integrations,
    ) -> None:
        """`published` is read only: what is on the stream of a group began an earlier term."""
        self._cluster = cluster
        self._published = published
        self._integrations = integrations
        self._groups = Groups()
        self._records: dict[Group, _GroupRecord] = {}

    def read(self, observed: Observed, integration: Integration) -> tuple[Read, ...]:
        """Return the observation itself, or those of the groups of which the object is or was."""
        if integration.group is None or observed.namespace is None:
            return ((observed, integration),)
        job = observed.body
        if observed.deleted or job is None:
            left = self._groups.forget(integration.kind, observed)
            return ((observed, integration),) if left is None else (self._of(left, observed),)
        if self._is_alone(job, integration):
            version = whole_number(observed.resource_version) or 0
            where = (observed.namespace, observed.name, version)
            left = self._groups.leave(integration.kind, *where)
            before = () if left is None else (self._of(left, observed),)
            return (*before, (observed, integration))
        changed = self._groups.observe(job, integration)
        return tuple(self._of(group, observed) for group in changed)

    def _is_alone(self, job: Body, integration: Integration) -> bool:
        """Return whether the object is of no group, or belongs to something that waits as a whole."""
        assert integration.group is not None
        return (
            not (job["metadata"].get("labels") or {}).get(integration.group.label)
            or not integration.matches(job)
            or self._integrations.runs_with_controller(job, integration)
        )

    def _of(self, group: Group, observed: Observed) -> Read:
        """The observation of a group after one of its objects was observed."""
        integration = grouped(group.integration)
        record = self._record(group, observed)
        kind = integration.kind
        if not group.members:
            self._records.pop(group, None)
        body = None
        if group.members:
            body = group.body(uid=record.uid, created=record.created, finish=record.finish)
        seen = Observed(
            cluster=self._cluster,
            group=kind.group,
            version=kind.version,
            plural=kind.plural,
            kind=kind.kind,
            namespace=group.namespace,
            name=group.name,
            uid=record.uid,
            resource_version=str(group.version),
            deleted=body is None,
            object=None if body is None else dict(body),
        )
        return seen, integration

    def _record(self, group: Group, observed: Observed) -> _GroupRecord:
        """What the group keeps, as it is after this observation.

        It waits since its last object came. It has ended for good when it has ended: its user may delete what
        has succeeded.
        """
        record = self._records.get(group) or self._begun(group, observed)
        created = record.created
        if not record.complete:
            created = max(created, group.created(observed.name))
        record = _GroupRecord(
            uid=record.uid,
            created=created,
            complete=record.complete or group.complete,
            finish=record.finish or group.finish(),
        )
        self._records[group] = record
        return record

    def _begun(self, group: Group, observed: Observed) -> _GroupRecord:
        last = self._published.get(WorkloadRef(self._cluster, group.namespace, group.name))
        if last is None or last.owner is None or not last.owner.is_group or last.phase == "gone":
            return _GroupRecord(observed.uid, "", complete=False, finish=None)
        # What is gone since then was the newest, perhaps: quota waits for that version.
        group.version = max(group.version, whole_number(last.version) or 0)
        complete = last.members is None or last.members.complete
        return _GroupRecord(
            last.uid, last.created_at.isoformat(), complete=complete, finish=last.finish
        )


def is_of_group(workload: Body) -> bool:
    """Return whether a Workload says that it is that of a group of objects."""
    return annotations_of(workload).get(GROUP_WORKLOAD) == _TRUE


def by_detail(integrations: Integrations) -> Iterator[tuple[str, Integration]]:
    """Each kind that can wait, and its groups, by the token that tells them apart."""
    for integration in integrations:
        yield integration.detail, integration
        if integration.group is not None:
            yield (groups := grouped(integration)).detail, groups
