"""What the services with side effects report: outcomes, checks, dispatches, hosts, dead letters."""

from datetime import datetime
from typing import Any, ClassVar, Literal

from shared.contracts import subjects
from shared.contracts.kube.kinds import WORKLOAD_PRIORITY_CLASS
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import Message, Part
from shared.contracts.messages.workloads import OwnerReference
from shared.contracts.refs import WorkloadRef

__all__ = [
    "CheckState",
    "DeadLetter",
    "Dispatch",
    "HostAccess",
    "HostSlot",
    "HostState",
    "Machine",
    "OneTimeKey",
    "Outcome",
    "PlatformOffer",
    "PlatformState",
    "SealKey",
]


class Outcome(Message):
    """What became of a decision that a patcher carried out."""

    stream: ClassVar[str] = "OUTCOMES"
    type: ClassVar[str] = "dev.sluicegate.outcome.v1"

    cluster: str
    namespace: str
    name: str
    uid: str
    result: Literal["applied", "refused", "gone"]
    """`refused`: the cluster will never take it (Tekton's webhook, a policy): quota lets go."""

    action: str
    """`release`, `suspend`, `reserve`, `finish`."""

    term: int
    number: int
    """Of the decision."""

    version: str = ""
    """`resourceVersion` of the job after it; a `WorkloadState` of an older one does not know it yet."""

    message: str = ""
    at: datetime

    @property
    def ref(self) -> WorkloadRef:
        """The workload that it is about."""
        return WorkloadRef(self.cluster, self.namespace, self.name)

    @property
    def subject(self) -> str:
        """``sluice.outcome.<cluster>.<namespace>.<name>``."""
        return subjects.join("outcome", self.cluster, self.namespace, self.name)


class CheckState(Message):
    """What the one owner of an admission check says about one workload."""

    stream: ClassVar[str] = "CHECKS"
    type: ClassVar[str] = "dev.sluicegate.check.v1"

    cluster: str
    namespace: str
    name: str
    """Of the workload."""

    uid: str
    check: str
    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    message: str = ""
    requeue_after_seconds: float | None = None
    spoke: str | None = None
    """MultiKueue only: the cluster that won. It goes into `status.clusterName` of the Workload."""

    attempt: int = 0
    """Which reservation of the workload this answers: an older one is not meant."""

    at: datetime

    @classmethod
    def answer(
        cls,
        admission: Admission,
        check: str,
        state: Literal["Pending", "Ready", "Retry", "Rejected"],
        message: str,
        *,
        now: datetime,
        spoke: str | None = None,
        requeue_after_seconds: float | None = None,
    ) -> "CheckState":
        """The answer of `check` to a reservation."""
        return cls(
            cluster=admission.cluster,
            namespace=admission.namespace,
            name=admission.name,
            uid=admission.uid,
            check=check,
            state=state,
            message=message,
            requeue_after_seconds=requeue_after_seconds,
            spoke=spoke,
            attempt=admission.number,
            # Quota ignores answers that are older than the reservation, and this clock may be behind.
            at=max(now, admission.decided_at),
            traceparent=admission.traceparent,
        )

    def answers(self, admission: Admission) -> bool:
        """Whether this answers the reservation, and not an earlier one."""
        return (
            self.uid == admission.uid
            and self.attempt == admission.number
            and self.at >= admission.decided_at
        )

    @property
    def ref(self) -> WorkloadRef:
        """The workload that it is about."""
        return WorkloadRef(self.cluster, self.namespace, self.name)

    @property
    def subject(self) -> str:
        """``sluice.check.<cluster>.<namespace>.<workload>.<check>``."""
        return subjects.join("check", self.cluster, self.namespace, self.name, self.check)


class Dispatch(Message):
    """An order to one spoke about one workload of the hub."""

    stream: ClassVar[str] = "DISPATCHES"
    type: ClassVar[str] = "dev.sluicegate.dispatch.v1"

    spoke: str
    cluster: str
    """The hub cluster that the workload came from."""

    namespace: str
    name: str
    uid: str
    state: Literal["offered", "chosen", "withdrawn"]
    """`offered`: make the copy and let it compete. `chosen`: keep it. `withdrawn`: delete it."""

    job: dict[str, Any] | None = None
    """`offered`: the object to create on the spoke, labels set. `chosen`: None, since it is there.
    `withdrawn`: no more than what names it (apiVersion, kind, name, namespace, labels)."""

    workload: dict[str, Any] | None = None
    """`offered` to a cluster with a Kueue of its own: the Workload that queues there. The job is made
    once the spoke is chosen; `job` goes along with both."""

    target: OwnerReference | None = None
    """The job at the hub: the copy has its kind, namespace and name."""

    number: int = 0
    """Of this order: a later one to the same spoke for the same workload has a greater one. Withdrawing
    it does not change it."""

    attempt: int = 0
    """`Admission.number` of the reservation that it was made for."""

    started: bool = False
    """It was chosen once: unless the spoke says otherwise, the copy may run."""

    spec: dict[str, Any] | None = None
    """`chosen`: the spec that the copy was made with."""

    wish: dict[str, Any] | None = None
    """`chosen`: fields of the spec that the job's user changed since, to stop or cancel it."""

    priority_class: str | None = None
    """The WorkloadPriorityClass that the copy has by its job's label; None: none that the hub knows."""

    reranked: bool = False
    """The copy may have been made with another class; or `workload`, with another value of it."""

    at: datetime

    @property
    def ref(self) -> WorkloadRef:
        """The workload that it is about."""
        return WorkloadRef(self.cluster, self.namespace, self.name)

    @property
    def subject(self) -> str:
        """``sluice.dispatch.<spoke>.<namespace>.<name>``."""
        return subjects.join("dispatch", self.spoke, self.namespace, self.name)

    def chosen(self, *, wish: dict[str, Any] | None, at: datetime) -> "Dispatch":
        """The order that starts the copy: the spoke won. A Kueue of its own is given the job only now."""
        spec = self.spec if self.job is None else self.job.get("spec")
        job = self.job if self.workload is not None else None
        changes = {"state": "chosen", "job": job, "spec": spec, "wish": wish, "at": at}
        return self.model_copy(update=changes)

    def withdrawn(self, *, job: dict[str, Any] | None, at: datetime) -> "Dispatch":
        """The order that deletes the copy; `job` names it."""
        changes = {
            "state": "withdrawn",
            "started": self.state == "chosen",
            "job": job,
            "workload": None,
            "spec": None,
            "wish": None,
            "priority_class": None,
            "reranked": False,
            "at": at,
        }
        return self.model_copy(update=changes)

    def with_priority(
        self, priority_class: str, value: int, *, reranked: bool = True
    ) -> "Dispatch":
        """The same order with another priority. `reranked`: a copy that exists has to be changed, too."""
        changes: dict[str, Any] = {"priority_class": priority_class, "reranked": reranked}
        if self.job is not None:
            metadata = self.job["metadata"]
            labels = {**(metadata.get("labels") or {}), PRIORITY_CLASS_LABEL: priority_class}
            changes["job"] = {**self.job, "metadata": {**metadata, "labels": labels}}
        if self.workload is not None:
            kind = WORKLOAD_PRIORITY_CLASS
            reference = {"group": kind.group, "kind": kind.kind, "name": priority_class}
            fields = {"priority": value, "priorityClassRef": reference}
            changes["workload"] = {**self.workload, "spec": {**self.workload["spec"], **fields}}
        return self.model_copy(update=changes)


class HostState(Message):
    """The state of one TaskRun's host. Never carries key material in plain text."""

    stream: ClassVar[str] = "HOSTS"
    type: ClassVar[str] = "dev.sluicegate.host.v1"

    cluster: str
    namespace: str
    name: str
    """Of the TaskRun."""

    uid: str
    platform: str
    state: Literal["waiting", "launching", "ready", "failed", "released"]
    host: str = ""
    """Name of the static host or machine."""

    address: str = ""
    provider: str = ""
    message: str = ""
    secret: dict[str, str] | None = None
    """The content of the TaskRun's secret (`host`, `user-dir`, `error` …), without keys."""

    sealed: str | None = None
    """The rest of that secret (`otp` …, `id_rsa`), sealed for the cluster's patcher."""

    failed_hosts: list[str] = []
    """Hosts that could not be prepared for this TaskRun."""

    asked_at: datetime | None = None
    """When the TaskRun was created."""

    ordered_at: datetime | None = None
    """When its machine was ordered. None if no machine was ordered for it."""

    workload: str = ""
    """Workload of the PipelineRun that the TaskRun belongs to. Empty if it belongs to none."""

    slots: dict[str, str] = {}
    """Resources of that workload that count a machine of this platform. Quota releases them with the state
    `released`."""

    at: datetime

    @property
    def subject(self) -> str:
        """``sluice.host.<cluster>.<namespace>.<taskrun>``."""
        return subjects.join("host", self.cluster, self.namespace, self.name)


class HostAccess(Part):
    """How to log in to a host, as configured when the slot was given. Names a key, contains none."""

    user: str
    port: int = 22
    secret: str
    """Name of the secret with the private key and the hosts' public keys."""

    host_keys: list[str] = []
    """Accepted public keys of the host, besides those in the secret."""

    sudo_commands: str = ""


class HostSlot(Part):
    """The slot of one TaskRun on one host."""

    uid: str
    """Of the TaskRun."""

    namespace: str
    name: str
    host: str
    """Name of the static host or of the machine."""

    address: str
    state: Literal["held", "preparing", "ready", "cleaning"] = "ready"
    """`held`: reserved for a run that has quota, until its TaskRun exists. `preparing`: its user is being
    made. `cleaning`: its user is being removed, so the slot is not free yet."""

    access: HostAccess | None = None
    """None if nobody logs in to the host."""

    sealed: str = ""
    """As in `HostState`. The slot and its key are recorded in one message."""


class Machine(Part):
    """A machine of a provider, recorded from before its order until it is proved gone."""

    name: str
    """Derived from the TaskRun's uid, so that ordering it twice gives one machine."""

    provider: str
    tag: str = ""
    state: Literal["launching", "running", "terminating"]
    shared: bool = False
    """True for a machine of a pool, which outlives the TaskRun that it was ordered for."""

    holder: str
    """Uid of the TaskRun that it was ordered for."""

    task_run: str
    """`<namespace>:<name>` of that TaskRun, the tag `taskRunID` at the provider."""

    address: str = ""
    launched_at: datetime
    deadline: datetime
    """A machine without an address at this time is given up."""


class PlatformState(Message):
    """The slots and machines of one platform: the record that allocation starts from.

    It is published with the expected last sequence of its subject, so that two provisioners cannot both
    give the last slot away. `HostState` follows from it. It is never deleted: platforms are few.
    """

    stream: ClassVar[str] = "HOSTS"
    type: ClassVar[str] = "dev.sluicegate.platform.v1"

    cluster: str
    platform: str
    seats: list[HostSlot] = []
    machines: list[Machine] = []
    attempts: dict[str, int] = {}
    """TaskRun uid to the number of machines that were ordered for it."""

    refusals: dict[str, str] = {}
    """TaskRun uid to the reason why it gets no host. Kept until the TaskRun ends."""

    failed_hosts: dict[str, list[str]] = {}
    """TaskRun uid to the hosts that could not be prepared for it."""

    at: datetime

    @property
    def subject(self) -> str:
        """``sluice.platform.<cluster>._.<platform>``: not among the subjects of `HostState`."""
        return subjects.join("platform", self.cluster, None, self.platform)


class PlatformOffer(Message):
    """The platforms that builds of a cluster may ask for, from its host configuration."""

    stream: ClassVar[str] = "HOSTS"
    type: ClassVar[str] = "dev.sluicegate.platform-offer.v1"

    cluster: str
    configured: bool = True
    """False if there is no host configuration. A missing platform then means nothing."""

    platforms: dict[str, str] = {}
    """Platform to the resource that counts its slots: `linux/arm64` to `linux-arm64`."""

    problems: dict[str, str] = {}
    """Configured platform to the reason why it cannot be used."""

    at: datetime

    @property
    def subject(self) -> str:
        """``sluice.offer.<cluster>._._``."""
        return subjects.join("offer", self.cluster, None, None)


class SealKey(Message):
    """The public key of a cluster's patcher, for which secrets are sealed."""

    stream: ClassVar[str] = "HOSTS"
    type: ClassVar[str] = "dev.sluicegate.seal-key.v1"

    cluster: str
    public_key: str
    """X25519, 32 bytes in base64."""

    at: datetime

    @property
    def subject(self) -> str:
        """``sluice.seal.<cluster>._._``."""
        return subjects.join("seal", self.cluster, None, None)


class OneTimeKey(Message):
    """A private key that can be fetched once. It is encrypted with a password."""

    stream: ClassVar[str] = "KEYS"
    type: ClassVar[str] = "dev.sluicegate.one-time-key.v1"

    cluster: str
    id: str
    """Derived from the password by a one-way function."""

    state: Literal["waiting", "claimed", "delivered"]
    """`claimed`: it is being delivered. Without a confirmation it can be fetched again."""

    box: str = ""
    """The encrypted key. Empty once delivered."""

    expires_at: datetime
    at: datetime

    @property
    def subject(self) -> str:
        """``sluice.key.<cluster>._.<id>``."""
        return subjects.join("key", self.cluster, None, self.id)


class DeadLetter(Message):
    """A message that a service gave up on, with the reason."""

    stream: ClassVar[str] = "DEAD"
    type: ClassVar[str] = "dev.sluicegate.dead.v1"

    service: str
    original_subject: str
    original_sequence: int
    reason: str
    body: str
    """The original body; base64 where it is no UTF-8 (then `encoding` says so)."""

    encoding: Literal["utf-8", "base64"] = "utf-8"
    at: datetime

    @property
    def subject(self) -> str:
        """``sluice.dead.<service>.<original subject>``."""
        return f"{subjects.ROOT}.dead.{subjects.encode(self.service)}.{self.original_subject}"
