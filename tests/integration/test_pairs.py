"""The hub runs watcher and patcher of a cluster that it was given a kubeconfig of, as Kueue would."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.ctl.dev.supervisor import Supervisor
from services.ctl.pairs import Pairs, PairSettings
from services.ctl.setup.permissions import key_file, make_keys
from services.simulator.app import Simulator
from shared.bus.nats.bus import NatsBus
from shared.contracts.kube.kinds import CLUSTER_PROFILE, MULTIKUEUE_CLUSTER
from shared.contracts.kube.names import EXEC_EXTENSION, SPOKE_QUOTA
from shared.contracts.messages.spokes import Heartbeat, PairState
from shared.settings.cluster_profiles import AccessProvider
from shared.testing.builders import observed
from shared.testing.nats_server import nats_server
from shared.testing.waiting import eventually
from tests.clock import now

BEAT = "sluice.beat.west._._"
SYNCED = "sluice.observed.west._._.synced"
LOOK_SECONDS = 0.2

Spec = dict[str, Any]
SECRET: Spec = {"clusterSource": {"kubeConfig": {"location": "west"}}}
PROFILED: Spec = {"clusterSource": {"clusterProfileRef": {"name": "west"}}}


class Hub:
    """A bus, and the hub's pairs on it; the test plays the hub's watcher."""

    def __init__(self, bus: NatsBus, supervisor: Supervisor, folder: Path) -> None:
        self.bus = bus
        self.supervisor = supervisor
        self.secrets = folder / "secrets"
        self._version = 0

    async def name(self, spec: Spec, *, deleted: bool = False, quota: str | None = None) -> None:
        """The hub's watcher sees the MultiKueueCluster `west`; `quota`: its annotation."""
        self._version += 1
        seen = observed(MULTIKUEUE_CLUSTER, "west", spec, version=self._version, deleted=deleted)
        if quota is not None:
            assert seen.object is not None
            seen.object["metadata"]["annotations"] = {SPOKE_QUOTA: quota}
        await self.bus.publish(seen)

    def write(self, kubeconfig: str) -> Path:
        """The Secret `west`, as it is mounted."""
        file = self.secrets / "west" / "kubeconfig"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(kubeconfig)
        return file

    async def problem(self) -> str | None:
        entry = await self.bus.latest("SPOKES", "sluice.pair.hub._.west")
        return None if entry is None else PairState.decode(entry.data).problem

    async def says(self, problem: str) -> None:
        """Wait until the pair has this problem; the empty text says that it has none."""

        async def so() -> bool:
            return await self.problem() == problem

        await eventually(so)

    async def beats(self) -> str | None:
        """Who is heard of west; each process names itself anew."""
        entry = await self.bus.latest("SPOKES", BEAT)
        return None if entry is None else Heartbeat.decode(entry.data).instance

    def pids(self) -> set[int | None]:
        return {self.supervisor.pid(name) for name in self.supervisor.names}


@asynccontextmanager
async def hub(
    folder: Path, *, providers: tuple[AccessProvider, ...] = (), **settings: Any
) -> AsyncIterator[Hub]:
    async with nats_server() as server:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLUICE_NATS_URL", server.url)
            patch.setenv("SLUICE_BEAT_SECONDS", "0.5")
            bus = NatsBus(url=server.url, instance="pairs-test", now=now)
            supervisor = Supervisor(logs=folder / "logs", say=print)
            one = Hub(bus, supervisor, folder)
            pairs = Pairs(
                settings=PairSettings(
                    spoke_secrets=one.secrets, look_seconds=LOOK_SECONDS, **settings
                ),
                bus=bus,
                supervisor=supervisor,
                now=now,
                providers=providers,
            )
            await bus.start()
            running = asyncio.create_task(pairs.run())
            try:
                yield one
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                await bus.stop()


async def test_pair_runs_as_long_as_its_cluster_has_a_kubeconfig(
    tmp_path: Path,
) -> None:
    simulator = Simulator(behaviour=False)
    await simulator.start()
    try:
        async with hub(tmp_path) as at:
            file = at.write(simulator.kubeconfig())
            await at.name(SECRET)
            await eventually(lambda: at.bus.latest("OBSERVED", SYNCED))
            await eventually(at.beats)
            assert at.supervisor.names == ("watcher-west", "patcher-west")
            await at.says("")
            before = at.pids()

            file.write_text(f"{simulator.kubeconfig()}# renewed\n")
            await eventually(lambda: _others(at, before))

            await at.name(SECRET, deleted=True)
            await eventually(lambda: _nobody(at))
    finally:
        await simulator.stop()


PLUGIN = """
import json, os, sys
told = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
with open(sys.argv[1], "w") as file:
    json.dump(told["spec"]["cluster"], file)
status = {"token": "from-" + os.environ["WHO"]}
print(json.dumps({"apiVersion": told["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


async def test_pair_runs_with_the_address_of_a_cluster_profile_and_credentials_of_a_plugin(
    tmp_path: Path,
) -> None:
    told = tmp_path / "told.json"
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", PLUGIN, str(told)],
        "env": [{"name": "WHO", "value": "plugin"}],
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": True,
    }
    provider = AccessProvider.model_validate({"name": "inventory", "execConfig": plugin})
    simulator = Simulator(behaviour=False)
    await simulator.start()
    try:
        async with hub(tmp_path, providers=(provider,)) as at:
            await at.name(PROFILED)
            await at.says("ClusterProfile sluicegate/west: does not exist")
            server = yaml.safe_load(simulator.kubeconfig())["clusters"][0]["cluster"]["server"]
            extension = {"name": EXEC_EXTENSION, "extension": {"audience": "west"}}
            cluster = {"server": server, "extensions": [extension]}
            for namespace, name in (("elsewhere", "other"), ("sluicegate", "inventory")):
                uid = {"uid": namespace}
                seen = observed(CLUSTER_PROFILE, "west", namespace=namespace, metadata=uid)
                assert seen.object is not None
                seen.object["status"] = {"accessProviders": [{"name": name, "cluster": cluster}]}
                await at.bus.publish(seen)
                if namespace == "elsewhere":
                    await asyncio.sleep(3 * LOOK_SECONDS)
                    await at.says("ClusterProfile sluicegate/west: does not exist")
            await eventually(at.beats)
            await at.says("")
            assert json.loads(told.read_text()) == {
                "server": server,
                "config": {"audience": "west"},
            }
    finally:
        await simulator.stop()


async def test_plugin_that_cannot_answer_yet_is_asked_again(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", f"test -e {ready} && exec cat {tmp_path}/answer"],
        "interactiveMode": "Never",
    }
    answer = {
        "apiVersion": plugin["apiVersion"],
        "kind": "ExecCredential",
        "status": {"token": "t"},
    }
    (tmp_path / "answer").write_text(json.dumps(answer))
    provider = AccessProvider.model_validate({"name": "inventory", "execConfig": plugin})
    async with hub(tmp_path, providers=(provider,), again_seconds=0.3) as at:
        cluster = {"server": "http://127.0.0.1:9"}
        seen = observed(CLUSTER_PROFILE, "west", namespace="sluicegate")
        assert seen.object is not None
        seen.object["status"] = {"accessProviders": [{"name": "inventory", "cluster": cluster}]}
        await at.bus.publish(seen)
        await at.name(PROFILED)

        async def is_told() -> bool:
            return "process returned 1" in (await at.problem() or "")

        await eventually(is_told)
        ready.touch()
        await at.says("")


async def test_secret_annotation_names_the_admitter_of_a_spoke(tmp_path: Path) -> None:
    simulator = Simulator(behaviour=False)
    await simulator.start()
    try:
        async with hub(tmp_path) as at:
            at.write(simulator.kubeconfig())

            async def quota() -> str | None:
                entry = await at.bus.latest("SPOKES", BEAT)
                return None if entry is None else entry.read(Heartbeat).quota

            async def is_kueues() -> bool:
                return await quota() == "kueue"

            async def is_the_hubs() -> bool:
                return await quota() == "hub"

            await at.name(SECRET)
            await eventually(is_the_hubs)
            await at.name(SECRET, quota="kueue")
            await eventually(is_kueues)
            await at.name(SECRET, quota="both")
            await at.says(
                "metadata.annotations[sluicegate.dev/spoke-quota]: 'both': must be hub or kueue"
            )
            assert at.supervisor.names == ()
    finally:
        await simulator.stop()


async def _others(at: Hub, before: set[int | None]) -> bool:
    pids = at.pids()
    return len(pids) == 2 and None not in pids and not pids & before


async def _nobody(at: Hub) -> bool:
    return not at.supervisor.names


async def test_pair_reports_a_lost_api_server(tmp_path: Path) -> None:
    simulator = Simulator(behaviour=False)
    await simulator.start()
    async with hub(tmp_path) as at:
        at.write(simulator.kubeconfig())
        await at.name(SECRET)

        async def last() -> Heartbeat | None:
            entry = await at.bus.latest("SPOKES", BEAT)
            return None if entry is None else entry.read(Heartbeat)

        async def reached() -> bool:
            beat = await last()
            return beat is not None and beat.api and beat.identity is not None

        async def away() -> bool:
            beat = await last()
            return beat is not None and not beat.api

        await eventually(reached)
        await simulator.stop()
        await eventually(away)
        await at.says("")  # The pair itself is well.


async def test_crash_looping_pair_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_EVENTS_PER_SECOND", "many")
    simulator = Simulator(behaviour=False)
    await simulator.start()
    try:
        async with hub(tmp_path) as at:
            at.write(simulator.kubeconfig())
            await at.name(SECRET)
            await at.says(
                "Its patcher cannot stay: it keeps ending (status 2); "
                "the log of `sluice run pairs` says more"
            )
    finally:
        await simulator.stop()


UNUSABLE: dict[str, tuple[Spec, str, str]] = {
    "no Secret": (SECRET, "", "/secrets/west/kubeconfig: No such file or directory"),
    "no kubeconfig in it": (SECRET, "{}", "west/kubeconfig: ConfigException: "),
    "a Secret outside of the folder": (
        {"clusterSource": {"kubeConfig": {"location": "../west"}}}, "x",
        "'../west' is no name of a Secret",
    ),
    "a missing file, in the fields of v1beta1": (
        {"kubeConfig": {"location": "/nowhere/west", "locationType": "Path"}}, "",
        "/nowhere/west: No such file or directory",
    ),
    "a ClusterProfile that does not exist": (
        PROFILED, "",
        "ClusterProfile sluicegate/west: does not exist",
    ),
    "no source that anybody knows": (
        {"kubeConfig": {"locationType": "Path"}}, "",
        "Only a kubeConfig is understood, with its location",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "content", "problem"), UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_problem_of_a_pair_is_published_until_it_is_solved(
    tmp_path: Path, spec: Spec, content: str, problem: str
) -> None:
    async with hub(tmp_path) as at:
        if content:
            at.write(content)
        await at.name(spec)
        await eventually(at.problem)
        assert problem in (await at.problem() or "")
        assert at.supervisor.names == ()
        await at.name({})
        await at.says("")


async def test_pair_without_a_key_is_not_started(tmp_path: Path) -> None:
    make_keys(tmp_path, ["pairs"])
    keys: dict[str, Any] = {"nats_nkey": key_file(tmp_path, "pairs"), "spoke_keys": tmp_path}
    async with hub(tmp_path, **keys) as at:
        at.write(Simulator(behaviour=False).kubeconfig())
        await at.name(SECRET)
        await eventually(at.problem)
        assert "`sluice bus permissions --spoke west` makes one" in (await at.problem() or "")
