"""TaskRuns that need machines, with static hosts and a cloud that both fail."""

import asyncio
import base64
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Any, Final

from services.patcher import app as patcher
from services.patcher.settings import PatcherSettings
from services.provisioner import app as provisioner
from services.provisioner.hosts.access import KeyDelivery, SecretKeyDelivery
from services.provisioner.hosts.fake import FakeFleet, FakeHosts
from services.provisioner.hosts.port import HostTarget
from services.provisioner.keys.one_time import OneTimeKeyStore
from services.provisioner.providers.fake import Action, FakeCloud, FakeProvider
from services.provisioner.providers.port import Order, ProviderBusyError, ProviderError
from services.provisioner.settings import ProvisionerSettings
from services.simulator.scenarios.basic import faults_of
from services.simulator.scenarios.machines.late_records import delay_records
from services.simulator.scenarios.machines.runs import Runs
from services.simulator.scenarios.port import Verdict, run_world
from services.simulator.scenarios.swarm.power_cuts import LostTails
from services.simulator.scenarios.system import CLUSTER, System
from shared.bus.port import LogChangedError
from shared.contracts import subjects
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import annotations_of
from shared.contracts.kube.conditions import SUCCEEDED, has_status
from shared.contracts.kube.names import HOST_SECRET, OPERATOR_NAMESPACE
from shared.contracts.messages.hosts import ANSWERED, HostState, PlatformState
from shared.contracts.multi_platform import (
    CONFIG_LABEL,
    HOST_CONFIG,
    PLATFORM_PARAMETER,
    SECRET_PREFIX,
)
from shared.contracts.simulation import DURATION
from shared.contracts.subjects import Stream
from shared.kube.port import NotFoundError
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.world import ProcessContext, World

LOAD_SECONDS: Final = 120.0
FAULT_SECONDS: Final = 180.0
END_SECONDS: Final = 3600.0
SETTLE_SECONDS: Final = 900.0
"""Time after the last build for shrinking pools and removing users."""

SWEEP_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.5
NAMESPACE: Final = OPERATOR_NAMESPACE
HOST_SUBJECTS: Final = subjects.join("host") + "."
PLATFORM_SUBJECTS: Final = subjects.join("platform") + "."
TEAMS: Final = ("team-a", "team-b")
PLATFORMS: Final = (
    "linux/arm64", "linux/arm64", "linux/s390x", "linux/ppc64le", "linux/ppc64le",
    "local", "linux/riscv64", "Linux/ARM",
)  # fmt: skip

MAXIMUM: Final = {"linux/arm64": 4, "linux/s390x": 2}
POOL_CONCURRENCY: Final = 2


def host_config(random: Random) -> dict[str, str]:
    """Return the configuration: three static hosts, a platform with a machine per build, and a pool."""
    data = {
        "local-platforms": "linux/x86_64,local,localhost,",
        "dynamic-platforms": "linux/arm64",
        "dynamic-pool-platforms": "linux/s390x",
        "instance-tag": "world",
    }
    dynamic = {"type": "fake", "check-interval": "1", "allocation-timeout": "60"}
    for platform, maximum in MAXIMUM.items():
        prefix = f"dynamic.{platform.replace('/', '-')}."
        given = {**dynamic, "max-instances": str(maximum), "ssh-secret": "cloud-ssh"}
        data |= {prefix + key: value for key, value in given.items()}
    data["dynamic.linux-s390x.concurrency"] = str(POOL_CONCURRENCY)
    data["dynamic.linux-s390x.max-age"] = "5"
    for number in range(1, 4):
        host = {
            "address": f"10.0.0.{number}",
            "user": "root",
            "platform": "linux/ppc64le",
            "secret": "power-ssh",
            "concurrency": str(random.randint(1, 3)),
        }
        data |= {f"host.power-{number}.{key}": value for key, value in host.items()}
    return data


class _Cloud(FakeProvider):
    """A cloud before and after whose calls the provisioner may crash."""

    def __init__(self, cloud: FakeCloud, world: World) -> None:
        super().__init__(cloud)
        self._world = world

    async def launch(self, order: Order) -> None:
        await self._world.point(f"launch {order.name}")
        await super().launch(order)
        await self._world.point(f"launched {order.name}")

    async def terminate(self, name: str) -> None:
        await self._world.point(f"terminate {name}")
        await super().terminate(name)
        await self._world.point(f"terminated {name}")


class _Fleet(FakeHosts):
    """Static hosts before and after whose visits the provisioner may crash."""

    def __init__(self, fleet: FakeFleet, world: World) -> None:
        super().__init__(fleet)
        self._world = world

    async def prepare(self, target: HostTarget, *, public_key: str, expires_at: datetime) -> None:
        await self._world.point(f"prepare {target.user} on {target.host}")
        await super().prepare(target, public_key=public_key, expires_at=expires_at)
        await self._world.point(f"prepared {target.user} on {target.host}")

    async def clean(self, target: HostTarget) -> None:
        await self._world.point(f"clean {target.user} on {target.host}")
        await super().clean(target)
        await self._world.point(f"cleaned {target.user} on {target.host}")


class _SecretLeakDetector:
    """Records every private key and password, to search streams and logs for them at the end."""

    def __init__(self, keys: KeyDelivery, seen: list[bytes]) -> None:
        self._keys = keys
        self._seen = seen

    async def deliver(self, private_key: bytes) -> Mapping[str, str]:
        secret = await self._keys.deliver(private_key)
        # A part without line ends, as it would appear in JSON, in a log, and in base64.
        self._seen += [private_key.split(b"\n")[2][:40], base64.b64encode(private_key)[8:48]]
        self._seen += [secret["otp"].encode()] if "otp" in secret else []
        return secret


class _MachineWorld:
    """A world with its cloud and its hosts."""

    def __init__(self, system: System, random: Random, verdict: Verdict) -> None:
        self.system = system
        self.world = system.world
        self.random = random
        self.verdict = verdict
        self.config = host_config(random)
        self.fleet = FakeFleet()
        self.cloud = FakeCloud(
            now=self.world.now,
            seed=self.world.seed,
            broken_rate=random.choice((0.0, 0.0, 0.1, 0.3)),
        )
        self.one_time = random.random() < 1 / 2
        self.canaries: list[bytes] = []
        self.deleted: set[str] = set()
        self._told: dict[str, set[str]] = {}
        """Uid of a TaskRun to the host states that were published."""

        self._seen: set[tuple[int, datetime]] = set()
        """Sequence and time of the messages in `HOSTS` that were read."""

    # --- the processes ---

    async def provisioner(self, context: ProcessContext) -> None:
        bus = MemoryBus(self.system.server, instance=context.instance, random=context.random)
        keys: KeyDelivery = SecretKeyDelivery()
        if self.one_time:
            keys = OneTimeKeyStore(
                cluster=CLUSTER, bus=bus, url="https://otp/otp", authority=lambda: "PEM",
                life_seconds=3600, now=context.now, entropy=context.random.randbytes,
            )  # fmt: skip
        running = provisioner.assemble(
            settings=ProvisionerSettings(instance=context.instance, sweep_seconds=SWEEP_SECONDS),
            bus=bus,
            providers={"fake": _Cloud(self.cloud, self.world)},
            hosts=_Fleet(self.fleet, self.world),
            keys=_SecretLeakDetector(keys, self.canaries),
            now=context.now,
            random=context.random,
            entropy=context.random.randbytes,
        )
        await bus.start()
        await running.run()

    async def patcher(self, context: ProcessContext) -> None:
        bus = MemoryBus(self.system.server, instance=context.instance, random=context.random)
        running = patcher.assemble(
            settings=PatcherSettings(
                cluster=CLUSTER, instance=context.instance, seal_namespace=NAMESPACE
            ),
            bus=bus,
            kube=self.system.cluster_for(context),
            now=context.now,
            entropy=context.random.randbytes,
        )
        await bus.start()
        await running.run()

    # --- what happens ---

    async def build(self, number: int) -> str:
        """Create one TaskRun; return its uid."""
        random = self.random
        body: dict[str, Any] = {
            "apiVersion": kinds.TASK_RUN.api_version,
            "kind": kinds.TASK_RUN.kind,
            "metadata": {
                "name": f"build-{number:03}",
                "namespace": random.choice(TEAMS),
                "annotations": {DURATION: f"{random.randint(5, 60)}s"},
            },
            "spec": {
                "params": [{"name": PLATFORM_PARAMETER, "value": random.choice(PLATFORMS)}],
                "taskSpec": {"steps": [{"name": "build", "image": "builder"}]},
            },
        }
        created = await self.system.kube.create(kinds.TASK_RUN, body)
        self.world.note(f"submit {created['metadata']['name']}")
        return str(created["metadata"]["uid"])

    async def disturb(self) -> None:
        """Act as users, clouds and hosts do while builds run."""
        loop = asyncio.get_running_loop()
        while loop.time() < FAULT_SECONDS:
            await asyncio.sleep(self.random.expovariate(1 / 8))
            act = self.random.choice(
                (self._delete, self._fail, self._lose, self._hosts, self._edit)
            )
            await act()

    async def _delete(self) -> None:
        listing = await self.system.kube.list(kinds.TASK_RUN)
        if listing.items:
            metadata = self.random.choice(listing.items)["metadata"]
            self.deleted.add(metadata["uid"])
            self.world.note(f"delete {metadata['name']}")
            await self.system.kube.delete(kinds.TASK_RUN, metadata["namespace"], metadata["name"])

    async def _fail(self) -> None:
        actions: tuple[Action, ...] = ("launch", "find", "list", "terminate")
        action = self.random.choice(actions)
        kind = self.random.choice((ProviderError, ProviderBusyError))
        error = kind("fake", action, "a machine", "a bad day")
        self.cloud.fail_next(action, error, after=self.random.random() < 1 / 2)

    async def _lose(self) -> None:
        alive = self.cloud.alive(CLUSTER)
        if alive:
            self.cloud.lose(self.random.choice(alive).name)

    async def _hosts(self) -> None:
        silent, refusing = self.fleet.silent, self.fleet.refusing
        silent.clear()
        refusing.clear()
        names = ["power-1", "power-2", *(vm.name for vm in self.cloud.alive(CLUSTER))]
        self.random.choice((silent, refusing, set[str]())).add(self.random.choice(names))

    async def _edit(self) -> None:
        """Break the configuration, or remove a platform from it, for a while."""
        broken = dict(self.config)
        match self.random.choice(("typo", "platform", "host")):
            case "typo":
                broken["dynamic.linux-arm64.max-instances"] = "many"
            case "platform":
                broken["dynamic-pool-platforms"] = ""
            case _:
                for key in [key for key in broken if key.startswith("host.power-3.")]:
                    del broken[key]
        await self.configure(broken)
        await asyncio.sleep(self.random.uniform(0.1, 5))
        await self.configure(self.config)

    async def configure(self, data: dict[str, str]) -> None:
        patch = [{"op": "replace", "path": "/data", "value": data}]
        await self.system.kube.patch(kinds.CONFIG_MAP, NAMESPACE, HOST_CONFIG, patch)

    # --- judging ---

    async def watch(self) -> None:
        """Check continuously that no limit is exceeded."""
        while True:
            platforms = (
                self.cloud.machines[vm.name].order.platform for vm in self.cloud.alive(CLUSTER)
            )
            for platform, count in Counter(platforms).items():
                if count > MAXIMUM[platform]:
                    self.report_problem(
                        f"{count} machines of {platform}, {MAXIMUM[platform]} allowed"
                    )
            limits = self.limits()
            for host, slots in self._slots().items():
                if slots > limits[host]:
                    self.report_problem(f"{slots} TaskRuns on {host}, {limits[host]} allowed")
            for host, limit in limits.items():
                if len(users := self.fleet.on(host)) > limit:
                    self.report_problem(f"{len(users)} users on {host}, {limit} allowed")
            await asyncio.sleep(LOOK_SECONDS)

    def limits(self) -> dict[str, int]:
        """Return the largest number of TaskRuns for each host."""
        static = {
            f"power-{number}": int(self.config[f"host.power-{number}.concurrency"])
            for number in range(1, 4)
        }
        machines = {
            name: POOL_CONCURRENCY if machine.order.platform == "linux/s390x" else 1
            for name, machine in self.cloud.machines.items()
        }
        return {**static, **machines}

    def _slots(self) -> Counter[str]:
        return Counter(slot.host for state in self.records() for slot in state.seats)

    def records(self) -> list[PlatformState]:
        """Return the latest record of each platform."""
        return [
            PlatformState.decode(stored.data)
            for stored in self.system.server.view(Stream.HOSTS).messages.values()
            if stored.subject.startswith(PLATFORM_SUBJECTS)
        ]

    def read_states(self) -> None:
        """Note the host states that are in the log now: it may lose some."""
        for sequence, stored in self.system.server.streams[Stream.HOSTS].messages.items():
            if (
                stored.subject.startswith(HOST_SUBJECTS)
                and (sequence, stored.time) not in self._seen
            ):
                self._seen.add((sequence, stored.time))
                state = HostState.decode(stored.data)
                self._told.setdefault(state.uid, set()).add(state.state)

    def report_problem(self, problem: str) -> None:
        if problem not in self.verdict.problems:
            self.verdict.violated([problem])

    async def unended(self) -> list[str]:
        """Return the TaskRuns that still wait or run."""
        listing = await self.system.kube.list(kinds.TASK_RUN)
        return [
            one["metadata"]["name"]
            for one in listing.items
            if one["metadata"].get("deletionTimestamp")
            or not has_status(one, SUCCEEDED, "True", "False")
        ]

    async def judge_end(self, uids: list[str]) -> None:
        """Check what is left at the end."""
        recorded = [machine.name for state in self.records() for machine in state.machines]
        slot_names = [slot.name for state in self.records() for slot in state.seats]
        alive = [vm.name for vm in self.cloud.alive(CLUSTER)]
        for what, left in (
            ("machines that run", alive),
            ("machines on record", recorded),
            ("places on record", slot_names),
            ("users on hosts", [u for host in self.limits() for u in self._leftover_users(host)]),
            ("secrets", await self._secrets()),
            ("finalizers", await self._finalizers()),
        ):
            if left:
                self.report_problem(f"left behind: {what}: {', '.join(sorted(left))}")
        self.read_states()
        for uid in uids:
            if uid not in self.deleted and not self._told.get(uid, set()) & ANSWERED:
                self.report_problem(f"TaskRun {uid} got neither a secret nor an error")
        for place in self._leaks():
            self.report_problem(f"a private key can be read in {place}")

    def _leftover_users(self, host: str) -> list[str]:
        """Return users that remain on an existing host."""
        machine = self.cloud.machines.get(host)
        gone = machine is not None and machine.gone_at is not None
        return [] if gone else [f"{user} on {host}" for user in self.fleet.on(host)]

    async def _secrets(self) -> list[str]:
        """Secrets of hosts, but those of TaskRuns that do not name them: the patcher was killed between."""
        found = []
        for team in TEAMS:
            runs = (await self.system.kube.list(kinds.TASK_RUN, namespace=team)).items
            unnoted = {
                one["metadata"]["name"] for one in runs if HOST_SECRET not in annotations_of(one)
            }
            for secret in (await self.system.kube.list(kinds.SECRET, namespace=team)).items:
                name = secret["metadata"]["name"]
                if (
                    name.startswith(SECRET_PREFIX)
                    and name.removeprefix(SECRET_PREFIX) not in unnoted
                ):
                    found.append(name)
        return found

    async def _finalizers(self) -> list[str]:
        listing = await self.system.kube.list(kinds.TASK_RUN)
        return [
            one["metadata"]["name"] for one in listing.items if one["metadata"].get("finalizers")
        ]

    def _leaks(self) -> list[str]:
        """Return the streams and logs that contain one of the secrets."""
        places = {
            name: b"\n".join(stored.data for stored in stream.messages.values())
            for name, stream in self.system.server.streams.items()
        }
        places["the log"] = "\n".join(self.world.log).encode()
        return [
            target
            for target, text in places.items()
            if any(canary in text for canary in self.canaries)
        ]


def _lose_tails(scene: _MachineWorld) -> asyncio.Task[None] | None:
    """In one of three worlds the records of machines are lost from their log, and not from its view."""
    random = Random(f"tails/{scene.world.seed}")
    if random.random() >= 1 / 3:
        return None
    services = ("provisioner", "patcher")
    tails = LostTails(
        scene.system, random, Stream.HOSTS,
        services=services, until=FAULT_SECONDS, before_loss=scene.read_states,
    )  # fmt: skip
    return asyncio.create_task(tails.run())


def play(seed: int) -> Verdict:
    """Run the world of `seed`; return its verdict."""
    random = Random(f"machines/{seed}")
    verdict = Verdict(seed=seed)
    faults = faults_of(random)
    if faults.until_seconds:
        faults = replace(faults, until_seconds=FAULT_SECONDS, crash=5 * faults.crash)
    with World(seed, faults=faults) as world:
        scene = _MachineWorld(System(world), random, verdict)
        run_world(world, lambda: _drive(scene), verdict)
    # A process that finds its log set back ends, and begins anew.
    verdict.problems = [one for one in verdict.problems if LogChangedError.__name__ not in one]
    return verdict


async def _drive(scene: _MachineWorld) -> None:
    system, random = scene.system, scene.random
    for name in (NAMESPACE, *TEAMS):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await system.kube.create(kinds.NAMESPACE, body)
    labels = {CONFIG_LABEL: "hosts"}
    metadata = {"name": HOST_CONFIG, "namespace": NAMESPACE, "labels": labels}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": scene.config}
    await system.kube.create(kinds.CONFIG_MAP, config)
    system.serve("watcher")
    system.world.process("patcher-1", scene.patcher)
    replicas = random.randint(1, 2)
    for replica in range(1, replicas + 1):
        system.world.process(f"provisioner-{replica}", scene.provisioner)
    system.start_faults()
    delaying = asyncio.create_task(delay_records(system)) if replicas > 1 else None
    losing = _lose_tails(scene)
    watching = asyncio.create_task(scene.watch())
    meddling = asyncio.create_task(scene.disturb())
    runs = Runs(system, random, until_seconds=FAULT_SECONDS, note=scene.report_problem)
    running = asyncio.create_task(runs.play())
    uids = await _submit(scene)
    await meddling
    await asyncio.gather(*(one for one in (delaying, losing) if one is not None))
    # Before the runs end: a deleted TaskRun of theirs waits until its host is cleaned.
    scene.fleet.silent.clear()
    scene.fleet.refusing.clear()
    await running
    loop = asyncio.get_running_loop()
    while loop.time() < END_SECONDS and await scene.unended():  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(1.0)
    if left := await scene.unended():
        late = f"after {END_SECONDS:g} s these have not ended: {', '.join(left)}"
        scene.verdict.problems.append(late)
    await asyncio.sleep(SETTLE_SECONDS)
    await scene.judge_end(uids)
    if watching.done():
        watching.result()
    watching.cancel()


async def _submit(scene: _MachineWorld) -> list[str]:
    count = scene.random.choice((8, 20, 40))
    moments = sorted(scene.random.uniform(0, LOAD_SECONDS) for _ in range(count))
    loop, uids = asyncio.get_running_loop(), []
    began = loop.time()
    for number, at in enumerate(moments):
        await asyncio.sleep(max(0.0, began + at - loop.time()))
        try:
            uids.append(await scene.build(number))
        except NotFoundError as error:
            scene.verdict.problems.append(f"a TaskRun could not be submitted: {error}")
    return uids
