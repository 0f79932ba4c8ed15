"""Which jobs are managed, and which of them belong to the workload of their controller. Pure."""

from collections.abc import Callable
from typing import NamedTuple

from services.classifier.projection.cluster_objects import ClusterObjects
from services.classifier.projection.nesting import UNCOUNTABLE, Amounts, Nesting, amounts_of
from services.classifier.projection.owners.naming import Jobs, Naming
from services.classifier.projection.owners.origins import ABOVE_MAX, Origins
from services.classifier.projection.owners.ownership import asks_to_wait
from services.classifier.projection.pods.run_by_jobs import run_by_jobs
from services.classifier.projection.policy import Policy
from services.classifier.projection.workload_status import has_quota
from shared.contracts.kube import names
from shared.contracts.kube.bodies import Body, annotations_of
from shared.contracts.kube.names import may_be_of
from shared.contracts.messages.workloads import PodSet, WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.integrations import Integration, Integrations, controller_uid


class Membership(NamedTuple):
    """Reads what the projector knows, and changes none of it but whether a job has moved once."""

    policy: Policy
    cluster_objects: ClusterObjects
    integrations: Integrations
    naming: Naming
    nesting: Nesting
    origins: Origins
    jobs: Jobs
    by_uid: dict[str, WorkloadRef]
    workloads: dict[WorkloadRef, Body]
    published: dict[WorkloadRef, WorkloadState]
    pod_sets: Callable[[Body, Integration], list[PodSet] | None]
    """What a job asks for; None if that cannot be read."""

    def is_ours(self, job: Body, integration: Integration, ref: WorkloadRef) -> bool:
        """Return whether the job is managed: it names a queue, it did before, or the webhook held it.

        Removing the label does not release a job, nor does an empty one, nor another controller. With
        `manageJobsWithoutQueueName` a job without a queue is managed too, unless it runs already.
        """
        uid = job["metadata"]["uid"]
        if self.naming.is_published(ref, uid):
            # What may hold quota gives it back when it has ended, whatever is written into it.
            return True
        active, has_ended = integration.active(job), integration.finish(job) is not None
        if self.origins.left(job) and (active or not has_ended):
            return True
        if not integration.matches(job):
            return False
        if self.integrations.runs_with_controller(job, integration):
            return False
        if self.is_nested(job, integration):
            return uid in self.by_uid and not self.nesting.may_move(uid)
        if ref in self.published or ref in self.workloads:
            return True
        if not self.manages(ref.namespace):
            return False
        if asks_to_wait(job, integration):
            return True
        # What ran before the setting came is left alone, but not what a controller has no quota for.
        is_child = self.integrations.has_waiting_controller(job, integration.kind)
        return self.policy.manage_without_queue and (is_child or not (active or has_ended))

    def waits_by_itself(self, job: Body, integration: Integration) -> bool:
        """Return whether a job that its controller has no quota for waits for quota of its own."""
        return self.policy.manage_without_queue or asks_to_wait(job, integration)

    def is_nested(self, job: Body, integration: Integration) -> bool:
        """Return whether the job belongs to the workload of its controller.

        It does if the controller exists with that uid and name in that namespace, is managed, is of a kind
        that makes such jobs, and has quota for all that runs below it. While it has none, what it controls
        may wait with it, but not run: a job that runs then is one of its own. So is a job that the
        webhook held apart from its controller. A controller that belongs to another one's workload itself has
        what it asks for of that one's quota.
        """
        controller, metadata = controller_uid(job), job["metadata"]
        if controller in {"", metadata["uid"]}:
            return False
        waits_with_it = integration.held(job) and names.USER_PENDING not in annotations_of(job)
        root = self.root_of(controller)
        if not root:
            # A JobSet's Jobs may be observed before the JobSet. They wait until it is known.
            return waits_with_it and self.integrations.has_waiting_controller(job, integration.kind)
        if not self._makes(controller, job, integration):
            return False
        held, active = integration.held(job), integration.active(job)
        has_ended = integration.finish(job) is not None
        fits = has_ended or (held and not active) or self.fits(controller)
        if held:
            return waits_with_it and fits
        return fits if self.covers(root) else not active

    def root_of(self, uid: str) -> str:
        """Return the uid of the managed job to whose workload a controller belongs; empty if to none.

        It is that of the controller itself, if that is managed.
        """
        for _ in range(ABOVE_MAX):
            if uid in self.by_uid:
                return uid
            middle = self._known(uid)
            if middle is None or not self._makes(controller_uid(middle[1]), middle[1], middle[0]):
                return ""
            uid = controller_uid(middle[1])
        return ""

    def _known(self, uid: str) -> tuple[Integration, Body] | None:
        """Return the job of that uid, if it is managed or names a controller."""
        ref = self.by_uid.get(uid)
        if ref is not None:
            return self.jobs[ref]
        middle = self.nesting.middle(uid)
        body = None if middle is None else middle.observed.body
        return None if middle is None or body is None else (middle.integration, body)

    def _makes(self, controller: str, job: Body, integration: Integration) -> bool:
        """Return whether that controller makes such jobs there, and finds this one by its name."""
        above = self._known(controller)
        if above is None or not above[0].makes(integration.kind):
            return False
        metadata = above[1]["metadata"]
        owners = job["metadata"].get("ownerReferences") or []
        named = {str(one.get("name")) for one in owners if one.get("controller")}
        return metadata["name"] in named and metadata["namespace"] == job["metadata"]["namespace"]

    def fits(self, controller: str) -> bool:
        """Return whether what runs below a controller is no more than what the controller was given."""
        ref = self.by_uid.get(controller)
        if ref is None:
            middle = self._known(controller)
            return middle is None or self.nesting.fits(controller, self._room_in(*middle))
        owner = self.published.get(ref)
        if owner is None or owner.uid != controller:
            return True  # Asked again once it is known what the controller has.
        return self.nesting.fits_in(owner)

    def _room_in(self, integration: Integration, job: Body) -> Amounts:
        """Return what a job between others has for those below it."""
        pod_sets = self.pod_sets(job, integration)
        return UNCOUNTABLE if pod_sets is None else amounts_of(run_by_jobs(integration, pod_sets))

    def covers(self, uid: str) -> bool | None:
        """Return whether a managed job's quota is for its children too; None: it is not managed.

        What belongs to its workload covers its own children if it does.

        The job is released after its Workload has quota, but the two are observed in any order: a job
        that is released counts too. Without admission it is stopped soon. One that has ended keeps its
        quota until what it made has ended.
        """
        ref = self.by_uid.get(uid)
        if ref is None:
            root = self.root_of(uid)
            return self.covers(root) if root else None
        integration, job = self.jobs[ref]
        if integration.finish(job) is not None:
            last = self.published.get(ref)
            has_ended = last is None or last.uid != uid or last.phase == "finished"
            return not has_ended and self.nesting.has_running(uid)
        return (
            not integration.held(job)
            or integration.active(job)
            or has_quota(self.own_workload(ref, uid))
        )

    def own_workload(self, ref: WorkloadRef, uid: str) -> Body | None:
        """Return the Workload object of the job `uid`, None if there is none."""
        workload = self.workloads.get(ref)
        return workload if workload is not None and may_be_of(workload, uid) else None

    def manages(self, namespace: str) -> bool:
        """Return whether the configuration manages jobs of a namespace."""
        return self.policy.manages(namespace, self.cluster_objects.namespace_labels(namespace))
