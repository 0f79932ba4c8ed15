"""Secret, labels, annotations and finalizer of a TaskRun for each state of its host."""

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.patcher.cluster.events import EventRecorder
from services.patcher.machines import seal_key
from services.patcher.machines.seal_key import SECRET_NAME, SealKeyStore
from services.patcher.machines.secrets import NOT_OPENED, MachineSecrets, task_run_patch
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.bus.port import LaterError, NeverError
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import SECRET, TASK_RUN
from shared.contracts.kube.names import HOST_SECRET
from shared.contracts.messages.hosts import HostState, SealKey
from shared.contracts.multi_platform import FINALIZER
from shared.contracts.seal import SealError, open_sealed, public_key_of, seal
from shared.kube.port import NotFoundError
from shared.testing.waiting import eventually
from shared.testing.world.memory_bus import MemoryBus, MemoryServer

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PREFIX = "build.appstudio.redhat.com/"
ENTROPY = Random(7).randbytes
MOUNTED = "multi-platform-ssh-build"


class Setup:
    def __init__(self) -> None:
        self.kube = LocalKube(Api(now=lambda: NOON, random=Random(1)))
        self.server = MemoryServer()
        self.bus = MemoryBus(self.server, instance="patcher")
        self.uid = ""
        self.keeper = self.another_keeper()
        events = EventRecorder(kube=self.kube, now=lambda: NOON, per_second=0)
        self.machines = MachineSecrets(
            kube=self.kube, events=events, seal_keys=self.keeper, excluded=("kube-*",)
        )

    def another_keeper(self) -> SealKeyStore:
        return SealKeyStore(
            cluster="hub", namespace="default", bus=self.bus, kube=self.kube, now=lambda: NOON,
            entropy=ENTROPY,
        )  # fmt: skip

    async def task_run(
        self, name: str = "build", *, namespace: str = "default", mounts: str | None = MOUNTED
    ) -> str:
        """A TaskRun whose task mounts the Secret `mounts`; return its uid."""
        metadata = {"name": name, "namespace": namespace}
        created = await self.kube.create(TASK_RUN, {"metadata": metadata, "spec": {"taskSpec": {}}})
        if mounts is not None:
            status = {"taskSpec": {"volumes": [{"name": "ssh", "secret": {"secretName": mounts}}]}}
            await self.kube.patch(
                TASK_RUN, namespace, name, {"status": status}, subresource="status"
            )
        uid: str = created["metadata"]["uid"]
        return uid

    def said(self, state: Any, **more: Any) -> HostState:
        return HostState(
            cluster="hub", namespace="default", name="build", uid=self.uid, state=state, at=NOON,
            **{"platform": "linux/arm64", **more},
        )  # fmt: skip

    async def marks(self) -> tuple[dict[str, str], dict[str, str], list[str]]:
        metadata = (await self.kube.get(TASK_RUN, "default", "build"))["metadata"]
        fields = [metadata.get("labels") or {}, metadata.get("annotations") or {}]
        short = [
            {k.removeprefix(PREFIX): v for k, v in one.items() if k != HOST_SECRET}
            for one in fields
        ]
        return short[0], short[1], metadata.get("finalizers") or []

    async def contents(self) -> list[list[Any]]:
        """All TaskRuns and Secrets."""
        return [(await self.kube.list(kind)).items for kind in (TASK_RUN, SECRET)]

    async def secret(self) -> dict[str, str]:
        data = (await self.kube.get(SECRET, "default", "multi-platform-ssh-build"))["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def box(self, *, to: str, uid: str | None = None, content: bytes = b'{"otp": "canary"}') -> str:
        context = f"host/hub/default/build/{uid or self.uid}"
        return seal(content, to=to, context=context, entropy=ENTROPY)


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    setup = Setup()
    await setup.bus.start()
    setup.uid = await setup.task_run()
    yield setup
    await setup.bus.stop()


ALWAYS = {"target-platform": "linux-arm64"}
MACHINE = {"host": "m-1", "provider": "aws", "ordered_at": NOON}
SEATED = {**MACHINE, "address": "10.0.0.7"}
READY = {**SEATED, "secret": {"host": "u-1@10.0.0.7"}}


async def test_task_run_shows_each_state_of_its_host(setup: Setup) -> None:
    await setup.machines.apply(setup.said("waiting", message="full"))
    assert await setup.marks() == ({"waiting-for-platform": "linux-arm64", **ALWAYS}, {}, [])

    dynamic = {**ALWAYS, "cloud-dynamic-platform": "linux-arm64"}
    ordered = {"cloud-instance-id": "m-1", "allocation-start-time": "1767268800"}
    await setup.machines.apply(setup.said("launching", **MACHINE))
    assert await setup.marks() == (dynamic, ordered, [FINALIZER])

    held = (
        {**dynamic, "assigned-host": "m-1"},
        {**ordered, "cloud-address": "10.0.0.7"},
        [FINALIZER],
    )
    await setup.machines.apply(setup.said("launching", **SEATED))
    assert await setup.marks() == held
    for _ in range(2):
        await setup.machines.apply(setup.said("ready", **READY))
    assert await setup.marks() == held
    assert await setup.secret() == {"host": "u-1@10.0.0.7"}

    await setup.machines.apply(setup.said("released", **SEATED))
    assert await setup.marks() == (ALWAYS, {}, [])
    with pytest.raises(NotFoundError):
        await setup.secret()


async def test_static_host_gets_no_cloud_annotations(setup: Setup) -> None:
    await setup.machines.apply(setup.said("ready", host="power-1", address="10.0.0.1"))
    assert await setup.marks() == ({**ALWAYS, "assigned-host": "power-1"}, {}, [FINALIZER])


async def test_deleted_task_run_goes_after_its_host_is_released(setup: Setup) -> None:
    await setup.machines.apply(setup.said("ready", **READY))
    await setup.kube.delete(TASK_RUN, "default", "build")
    assert (await setup.marks())[2] == [FINALIZER], "still there"

    await setup.machines.apply(setup.said("released", **SEATED))
    with pytest.raises(NotFoundError):
        await setup.marks()
    await setup.machines.apply(setup.said("released", **SEATED))


async def test_failed_hosts_are_annotated(setup: Setup) -> None:
    failed = setup.said("failed", failed_hosts=["a", "b"], secret={"error": "no host"})
    await setup.machines.apply(failed)
    assert await setup.marks() == (ALWAYS, {"failed-hosts": "a,b"}, [])
    assert await setup.secret() == {"error": "no host"}


async def theirs(setup: Setup, task_run: str = "build") -> Any:
    """A Secret that somebody else made under the name of a build's."""
    metadata = {"name": f"multi-platform-ssh-{task_run}", "namespace": "default"}
    return await setup.kube.create(SECRET, {"metadata": metadata, "data": {"id_rsa": "eA=="}})


async def test_secret_without_a_task_run_is_not_deleted(setup: Setup) -> None:
    kept = await theirs(setup, "prod-deploy")
    gone = {"name": "prod-deploy", "uid": "made-up"}
    await setup.machines.apply(setup.said("released").model_copy(update=gone))
    assert (await setup.kube.list(SECRET)).items == [kept]


async def test_secret_of_another_writer_is_neither_changed_nor_deleted(setup: Setup) -> None:
    kept = await theirs(setup)
    for state in ("ready", "released"):
        await setup.machines.apply(setup.said(state, **READY))
    assert (await setup.kube.list(SECRET)).items == [kept]


async def test_secret_recreated_by_another_writer_is_not_deleted(setup: Setup) -> None:
    await setup.machines.apply(setup.said("ready", **READY))
    await setup.kube.delete(SECRET, "default", MOUNTED)
    kept = await theirs(setup)
    await setup.machines.apply(setup.said("released", **SEATED))
    assert (await setup.kube.list(SECRET)).items == [kept]
    assert await setup.marks() == (ALWAYS, {}, [])


async def test_another_patcher_deletes_the_secret_that_this_one_made(setup: Setup) -> None:
    await setup.machines.apply(setup.said("ready", **READY))
    setup.machines.made.clear()
    await setup.machines.apply(setup.said("ready", **READY))
    await setup.machines.apply(setup.said("released", **SEATED))
    assert (await setup.kube.list(SECRET)).items == []


async def test_another_task_run_of_the_name_is_not_changed(setup: Setup) -> None:
    other = setup.said("launching", **MACHINE).model_copy(update={"uid": "another"})
    await setup.machines.apply(other)
    assert await setup.marks() == ({}, {}, [])


NO_BUILDS: dict[str, tuple[dict[str, Any], str]] = {
    "it mounts nothing": ({"mounts": None}, "does not mount Secret multi-platform-ssh-other"),
    "it mounts another secret": ({"mounts": "ssh-keys"}, "does not mount"),
    "it mounts the secret of another build": ({"mounts": MOUNTED}, "does not mount"),
    "its namespace is excluded": (
        {"namespace": "kube-system", "mounts": "multi-platform-ssh-other"},
        "SLUICE_EXCLUDED_NAMESPACES",
    ),
}
STATES: dict[str, dict[str, Any]] = {
    "waiting": {}, "launching": MACHINE, "ready": READY, "failed": {"secret": {"error": "no"}},
    "released": {},
}  # fmt: skip


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("made", "why"), NO_BUILDS.values(), ids=NO_BUILDS)
async def test_task_run_that_waits_for_no_host_is_left_alone(
    setup: Setup, made: dict[str, Any], why: str, state: str
) -> None:
    uid = await setup.task_run("other", **made)
    where = {"name": "other", "uid": uid, "namespace": made.get("namespace", "default")}
    before = await setup.contents()
    with pytest.raises(NeverError, match=why):
        await setup.machines.apply(setup.said(state, **STATES[state]).model_copy(update=where))
    assert await setup.contents() == before


async def test_task_run_whose_task_is_gone_is_rid_of_its_finalizer(setup: Setup) -> None:
    await setup.machines.apply(setup.said("ready", **READY))
    gone: dict[str, Any] = {"status": {"taskSpec": None}}
    await setup.kube.patch(TASK_RUN, "default", "build", gone, subresource="status")
    await setup.machines.apply(setup.said("released", **SEATED))
    assert (await setup.marks())[2] == []


async def test_secret_of_a_task_that_tekton_has_not_filled_in_yet_is_made(setup: Setup) -> None:
    uid = await setup.task_run("other", mounts="multi-platform-ssh-$(context.taskRun.name)")
    other = setup.said("ready", **READY).model_copy(update={"name": "other", "uid": uid})
    await setup.machines.apply(other)
    assert await setup.kube.get(SECRET, "default", "multi-platform-ssh-other")


def test_invalid_label_value_is_left_out(setup: Setup) -> None:
    obj = {"metadata": {"uid": "u", "resourceVersion": "1"}}
    state = setup.said("waiting").model_copy(update={"platform": "Not a/platform"})
    assert task_run_patch(as_body(obj), state) is None


async def test_sealed_values_are_opened_into_the_secret_only(setup: Setup) -> None:
    await run_once(setup, setup.keeper)
    key = await published(setup)

    await setup.machines.apply(setup.said("ready", **READY, sealed=setup.box(to=key)))

    assert await setup.secret() == {"host": "u-1@10.0.0.7", "otp": "canary"}


@pytest.mark.parametrize("wrong", ["another key", "another TaskRun", "no box"])
async def test_values_sealed_to_another_key_become_an_error(setup: Setup, wrong: str) -> None:
    await run_once(setup, setup.keeper)
    key = await published(setup)
    box = {
        "another key": setup.box(to=public_key_of(bytes(32))),
        "another TaskRun": setup.box(to=key, uid="another"),
        "no box": "bm8gYm94",
    }[wrong]

    await setup.machines.apply(setup.said("ready", **READY, sealed=box))

    assert await setup.secret() == {"error": NOT_OPENED}


@pytest.mark.parametrize(
    "content",
    [b"no JSON", b'["a"]', b'{"id_rsa": 5}', b"[" * 100_000],
    ids=["no JSON", "a list", "a number", "100,000 levels"],
)
async def test_sealed_content_of_another_shape_is_refused(setup: Setup, content: bytes) -> None:
    """Whoever has the public key can seal."""
    await run_once(setup, setup.keeper)
    box = setup.box(to=await published(setup), content=content)
    with pytest.raises(NeverError, match="sealed: holds no map of strings"):
        await setup.machines.apply(setup.said("ready", **READY, sealed=box))


async def test_sealed_values_wait_until_the_key_is_read(setup: Setup) -> None:
    box = setup.box(to=public_key_of(bytes(32)))
    with pytest.raises(LaterError):
        await setup.machines.apply(setup.said("ready", **READY, sealed=box))


async def test_replicas_share_one_key_across_restarts(setup: Setup) -> None:
    keepers = [setup.keeper, setup.another_keeper(), setup.another_keeper()]
    for keeper in keepers:
        await run_once(setup, keeper)
    box = setup.box(to=await published(setup))
    context = f"host/hub/default/build/{setup.uid}"
    assert len({keeper.open(box, context=context) for keeper in keepers}) == 1
    sequences = list(setup.server.streams["HOSTS"].messages.values())
    assert len(sequences) == 1, "said once"


async def test_secret_without_a_key_is_not_used(setup: Setup) -> None:
    metadata = {"name": SECRET_NAME, "namespace": "default"}
    await setup.kube.create(SECRET, {"metadata": metadata, "data": {"x25519": "c2hvcnQ="}})
    with capture_logs() as logs:
        task = asyncio.create_task(setup.keeper.run())
        await eventually(lambda: logs)
        task.cancel()
    assert await setup.bus.latest("HOSTS", "sluice.seal.hub._._") is None


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b'{"cluster": "hub"}'])
async def test_seal_key_replaces_an_unreadable_message(setup: Setup, garbage: bytes) -> None:
    setup.server.publish("sluice.seal.hub._._", garbage, {})
    task = asyncio.create_task(setup.keeper.run())

    async def is_said() -> bool:
        entry = await setup.bus.latest("HOSTS", "sluice.seal.hub._._")
        return entry is not None and entry.data != garbage

    await eventually(is_said)
    task.cancel()
    assert seal(b"x", to=await published(setup), context="x", entropy=ENTROPY)


async def test_reason_why_there_is_no_key_is_logged_once(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal_key, "RETRY_SECONDS", 0.0)
    metadata = {"name": SECRET_NAME, "namespace": "default"}
    await setup.kube.create(SECRET, {"metadata": metadata, "data": {"x25519": "c2hvcnQ="}})
    tries, get = iter(range(10)), setup.kube.get
    over = asyncio.Event()

    async def counted(*arguments: Any) -> Any:
        if next(tries, None) is None:
            over.set()
        return await get(*arguments)

    monkeypatch.setattr(setup.kube, "get", counted)
    with capture_logs() as logs:
        task = asyncio.create_task(setup.keeper.run())
        await over.wait()
        task.cancel()
    assert [line["event"] for line in logs] == ["no key to seal to yet"]


@pytest.mark.parametrize("box", ["", "!", "AAAA", base64.b64encode(bytes(64)).decode()])
def test_malformed_sealed_value_becomes_an_error(box: str) -> None:
    with pytest.raises(SealError, match="cannot be opened with this key"):
        open_sealed(box, private_key=bytes(range(32)), context="x")


async def published(setup: Setup) -> str:
    entry = await setup.bus.latest("HOSTS", "sluice.seal.hub._._")
    assert entry is not None
    return SealKey.decode(entry.data).public_key


async def run_once(setup: Setup, keeper: SealKeyStore) -> None:
    """Let it read and publish; it would wait forever after that."""
    task = asyncio.create_task(keeper.run())
    await eventually(lambda: keeper._private_key)
    await eventually(partial(setup.bus.latest, "HOSTS", "sluice.seal.hub._._"))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
