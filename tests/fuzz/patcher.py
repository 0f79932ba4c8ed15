"""Borders of the patcher: each message that it carries out, with a cluster for which it is about right."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from typing_extensions import override

from services.patcher.app import assemble
from services.patcher.settings import PatcherSettings
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.bus.port import Entry, Handler, LaterError, NeverError
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import ORIGIN, PREBUILT_WORKLOAD
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import Message, UndecodableError
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.hosts import HostState
from shared.contracts.messages.outcomes import RetryRequest
from shared.contracts.messages.spokes import ORDER, CheckCondition, HubStatus, SpokeState
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.seal import host_context, public_key_of, seal
from shared.testing.builders import observed_object
from shared.testing.world.loop import VirtualLoop
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer
from tests.fuzz import objects
from tests.fuzz.border import Border
from tests.fuzz.messages import NOON, addressed, sample
from tests.fuzz.values import texts, written

NAME: Final = "job-train-3f2a1"
"""Of the workload that the samples of messages are about."""

_KEY: Final = bytes(range(32))
_OWNED: Final = {
    "ownerReferences": [{
        "apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u-1", "controller": True}],
}  # fmt: skip
_MOUNTS: Final = {
    "volumes": [{"name": "s", "secret": {"secretName": "multi-platform-ssh-build-arm64"}}]
}

_CLUSTER: Final[tuple[tuple[Kind, dict[str, Any], dict[str, Any]], ...]] = (
    (kinds.NAMESPACE, objects.NAMESPACE, {}),
    (kinds.JOB, objects.JOB, {"uid": "u-1", "ownerReferences": []}),
    (kinds.WORKLOAD, objects.WORKLOAD, {"uid": "u-w", "name": NAME, **_OWNED}),
    (kinds.TASK_RUN, {**objects.TASK_RUN, "status": {"taskSpec": _MOUNTS}},
     {"uid": "t-1", "name": "build-arm64"}),
    (kinds.LOCAL_QUEUE, objects.LOCAL_QUEUE, {}),
    (kinds.CLUSTER_QUEUE, objects.CLUSTER_QUEUE, {"name": "team"}),
    (kinds.RESOURCE_FLAVOR, objects.FLAVOR, {"name": "spot"}),
    (kinds.ADMISSION_CHECK, objects.CHECK, {"name": "elsewhere"}),
    (kinds.MULTIKUEUE_CLUSTER, objects.SPOKE, {}),
)  # fmt: skip
"""Objects, with what of their metadata has to fit the samples of messages."""

_COPY: Final = {
    "apiVersion": "batch/v1", "kind": "Job",
    "metadata": {
        "name": "train", "namespace": "team-a", "annotations": {ORDER: "hub/1767268800000"},
        "labels": {"kueue.x-k8s.io/queue-name": "main", ORIGIN: "hub", PREBUILT_WORKLOAD: NAME},
    },
    "spec": {"suspend": True, "parallelism": 3, "template": objects.TEMPLATE},
}  # fmt: skip
_ORDER: Final = {**sample("dispatch"), "workload": None}

_SAMPLES: Final[Mapping[str, tuple[type[Message], tuple[dict[str, Any], ...]]]] = {
    "workload": (WorkloadState, (
        sample("workload"), {**sample("workload"), "phase": "waiting", "held": True, "pods_active": False},
        sample("workload-finished"))),
    "admission": (Admission, (
        sample("admission"), {**sample("admission"), "state": "reserved"},
        {**sample("admission"), "state": "evicted", "reason": "Preempted"})),
    "host": (HostState, (sample("host"), {**sample("host"), "state": "released"})),
    "dispatch": (Dispatch, (
        {**_ORDER, "state": "offered", "job": _COPY}, {**_ORDER, "state": "chosen", "job": None},
        {**_ORDER, "job": {**_COPY, "spec": {}}})),
    "home": (HubStatus, ({**sample("home"), "target": {**sample("home")["target"], "name": "train"}},)),
    "spoke": (SpokeState, (sample("spoke"),)),
    "standing": (CheckCondition, (sample("standing"),)),
    "retry": (RetryRequest, (sample("retry"),)),
}  # fmt: skip


class _Bus(MemoryBus):
    """Keeps the handlers, and delivers nothing to them."""

    handlers: dict[str, Handler]

    @override
    def work(self, stream: str, durable: str, handler: Handler, **_options: Any) -> None:
        self.handlers[durable.rpartition("-")[2]] = handler


async def _handle(what: str, entry: Entry) -> None:
    """Give a message to a patcher that knows its cluster."""
    cluster = "west" if what == "dispatch" else "hub"
    api = Api(now=lambda: NOON, random=Random(1))
    kube = LocalKube(api)
    bus = _Bus(MemoryServer(), instance="patcher-1")
    bus.handlers = {}
    settings = PatcherSettings(cluster=cluster, not_seen_seconds=0.01)
    patcher = assemble(settings=settings, bus=bus, kube=kube, now=lambda: NOON)
    await bus.start()
    cache = patcher.cache
    for kind, obj, metadata in _CLUSTER:
        made = deepcopy({**obj, "metadata": {**obj["metadata"], **metadata}})
        served = api.kinds.find(kind.group, kind.version, kind.plural)
        if served is not None:
            stored = api.store.put(served, made)
            cache._on_observed(observed_object(kind, stored.obj, cluster=cluster))
    cache._unread.clear()
    bus.handlers["host"].__self__.machines.seal_keys._private_key = _KEY  # type: ignore[attr-defined]
    for known, read in (("workload", cache._on_workload), ("admission", cache._on_admission)):
        type_, samples = _SAMPLES[known]
        body = type_.model_validate({**samples[0], "cluster": cluster}).encode()
        read(addressed(type_, body))
    try:
        await bus.handlers[what](entry)
    except (LaterError, NeverError, UndecodableError):
        pass
    finally:
        await bus.stop()


def _sealed(content: bytes) -> None:
    """A host whose secret was sealed to the patcher, by whoever has its public key."""
    host = sample("host")
    about = {name: host[name] for name in ("cluster", "namespace", "name", "uid")}
    box = seal(
        content, to=public_key_of(_KEY), context=host_context(**about),
        entropy=lambda size: bytes(range(1, size + 1)),
    )  # fmt: skip
    _call("host", HostState, written({**host, "sealed": box}))


def _call(what: str, kind: type[Message], data: bytes) -> None:
    """In virtual time: a handler may wait."""
    loop = VirtualLoop()
    entry = addressed(kind, data)
    try:
        # Newer than what the patcher knows.
        loop.run_until_complete(_handle(what, replace(entry, sequence=8)))
    finally:
        loop.dispose()


def borders() -> Iterator[Border]:
    """Each message that makes the patcher write."""
    for what, (kind, samples) in _SAMPLES.items():
        yield Border(
            name=f"patcher, message {what}", strategy=texts(*samples), call=partial(_call, what, kind),
            weight=0.3,
        )  # fmt: skip
    yield Border(
        name="patcher, sealed secret", strategy=texts({"id_rsa": "k", "host": "a"}), call=_sealed,
        weight=0.3,
    )  # fmt: skip
