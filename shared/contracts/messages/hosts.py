"""Hosts of TaskRuns: their states, slots, machines, platforms and keys."""

from typing import ClassVar, Literal

from shared.contracts import subjects
from shared.contracts.kube.moments import Moment
from shared.contracts.messages.base import Message, Part
from shared.contracts.subjects import Stream

HostPhase = Literal["waiting", "launching", "ready", "failed", "released"]

ALLOCATED: frozenset[HostPhase] = frozenset({"launching", "ready"})
"""In these states a host is kept for the TaskRun; a machine may still start."""

ANSWERED: frozenset[HostPhase] = frozenset({"ready", "failed"})
"""In these states the TaskRun gets its secret, with a host or with an error."""


class HostState(Message):
    """The state of one TaskRun's host. Never carries key material in plain text."""

    stream: ClassVar[Stream] = Stream.HOSTS
    type: ClassVar[str] = "dev.sluicegate.host.v1"

    cluster: str
    namespace: str
    name: str
    """Of the TaskRun."""

    uid: str
    platform: str
    state: HostPhase
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

    asked_at: Moment | None = None
    """When the TaskRun was created."""

    ordered_at: Moment | None = None
    """When its machine was ordered. None if no machine was ordered for it."""

    workload: str = ""
    """Workload of the PipelineRun that the TaskRun belongs to. Empty if it belongs to none."""

    slots: dict[str, str] = {}
    """Resources of that workload that count a machine of this platform. Quota releases them with the state
    `released`, which names none if the run had the machine beyond its quota."""

    at: Moment

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
    user: str = ""
    """The TaskRun's user on the host. Empty in records of versions that derived it from the name."""

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
    launched_at: Moment
    deadline: Moment
    """A machine without an address at this time is given up."""


class PlatformState(Message):
    """The slots and machines of one platform: the record that allocation starts from.

    It is published with the expected last sequence of its subject, so that two provisioners cannot both
    give the last slot away. `HostState` follows from it. It is never deleted: platforms are few.
    """

    stream: ClassVar[Stream] = Stream.HOSTS
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

    failure_reasons: dict[str, dict[str, str]] = {}
    """TaskRun uid to the reason of each of those hosts."""

    returned: dict[str, str] = {}
    """Uid of a TaskRun that has ended to the run whose slot it gave back, `<namespace>:<workload>`. Kept
    until the run has no quota."""

    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.platform.<cluster>._.<platform>``: not among the subjects of `HostState`."""
        return subjects.join("platform", self.cluster, None, self.platform)


class PlatformOffer(Message):
    """The platforms that builds of a cluster may ask for, from its host configuration."""

    stream: ClassVar[Stream] = Stream.HOSTS
    type: ClassVar[str] = "dev.sluicegate.platform-offer.v1"

    cluster: str
    configured: bool = True
    """False if there is no host configuration. A missing platform then means nothing."""

    platforms: dict[str, str] = {}
    """Platform to the resource that counts its slots: `linux/arm64` to `linux-arm64`."""

    problems: dict[str, str] = {}
    """Configured platform to the reason why it cannot be used."""

    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.offer.<cluster>._._``."""
        return subjects.join("offer", self.cluster, None, None)


class SealKey(Message):
    """The public key of a cluster's patcher, for which secrets are sealed."""

    stream: ClassVar[Stream] = Stream.HOSTS
    type: ClassVar[str] = "dev.sluicegate.seal-key.v1"

    cluster: str
    public_key: str
    """X25519, 32 bytes in base64."""

    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.seal.<cluster>._._``."""
        return subjects.join("seal", self.cluster, None, None)


class OneTimeKey(Message):
    """A private key that can be fetched once. It is encrypted with a password."""

    stream: ClassVar[Stream] = Stream.KEYS
    type: ClassVar[str] = "dev.sluicegate.one-time-key.v1"

    cluster: str
    id: str
    """Derived from the password by a one-way function."""

    state: Literal["waiting", "claimed", "delivered"]
    """`claimed`: it is being delivered. Without a confirmation it can be fetched again."""

    box: str = ""
    """The encrypted key. Empty once delivered."""

    expires_at: Moment
    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.key.<cluster>._.<id>``."""
        return subjects.join("key", self.cluster, None, self.id)
