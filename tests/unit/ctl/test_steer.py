"""What `stop` and `resume` write, to a simulated cluster over HTTP and in memory."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.ctl.admin.steer import steer, write_steering_field
from services.ctl.connect.cluster import ClusterChoice
from services.simulator.app import Simulator
from services.simulator.local import LocalKube
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.runtime.command import CommandError, Exit

CLUSTER_QUEUE: dict[str, Any] = {"resourceGroups": [], "namespaceSelector": {}}


@pytest.fixture
async def kube() -> AsyncIterator[LocalKube]:
    simulator = Simulator(behaviour=False)
    await simulator.start()
    kube = LocalKube(simulator.api)
    await make(kube, kinds.NAMESPACE, "team", {}, namespace=None)
    await make(kube, kinds.CLUSTER_QUEUE, "cq", CLUSTER_QUEUE, namespace=None)
    await make(kube, kinds.LOCAL_QUEUE, "main", {"clusterQueue": "cq"})
    await make(kube, kinds.JOB, "train", {"suspend": True, "template": POD_SET["template"]})
    job = await kube.get(kinds.JOB, "team", "train")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
    owner["uid"] = job["metadata"]["uid"]
    spec = {"queueName": "main", "podSets": [POD_SET], "active": True}
    await make(kube, kinds.WORKLOAD, "job-train-1", spec, ownerReferences=[owner])
    yield kube
    await simulator.stop()


POD_SET: dict[str, Any] = {
    "name": "main",
    "count": 1,
    "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
}


async def make(
    kube: LocalKube,
    kind: Kind,
    name: str,
    spec: Any,
    *,
    namespace: str | None = "team",
    **more: Any,
) -> None:
    metadata = {"name": name, **more} | ({"namespace": namespace} if namespace else {})
    await kube.create(
        kind,
        {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec},
    )


CASES: list[Any] = [
    pytest.param(
        kinds.CLUSTER_QUEUE, None, "cq", False, ("stopPolicy", "HoldAndDrain"),
        "clusterqueue cq stopped (stopPolicy: HoldAndDrain)", id="a ClusterQueue is drained",
    ),
    pytest.param(
        kinds.CLUSTER_QUEUE, None, "cq", True, ("stopPolicy", "Hold"),
        "clusterqueue cq stopped (stopPolicy: Hold)", id="what runs in it may be kept",
    ),
    pytest.param(
        kinds.LOCAL_QUEUE, "team", "main", True, ("stopPolicy", "Hold"),
        "localqueue team/main stopped (stopPolicy: Hold)", id="a LocalQueue is stopped alike",
    ),
    pytest.param(
        kinds.WORKLOAD, "team", "job-train-1", False, ("active", False),
        "workload team/job-train-1 stopped (active: false)", id="a workload is deactivated",
    ),
    pytest.param(
        kinds.WORKLOAD, "team", "train", False, ("active", False),
        "workload team/job-train-1 stopped (active: false)", id="a workload is found by its job",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "namespace", "name", "keep", "field", "said"), CASES)
async def test_stopping_and_resuming(
    kube: LocalKube, kind: Kind, namespace: str | None, name: str, keep: bool,
    field: tuple[str, Any], said: str,
) -> None:  # fmt: skip
    sentence = await write_steering_field(kube, kind, namespace, name, stop=True, keep_running=keep)
    assert sentence == said
    real = sentence.split()[1].rpartition("/")[2]
    obj = await kube.get(kind, namespace, real)
    assert obj["spec"][field[0]] == field[1]
    again = await write_steering_field(kube, kind, namespace, name, stop=True, keep_running=keep)
    assert "is stopped already" in again

    sentence = await write_steering_field(
        kube, kind, namespace, name, stop=False, keep_running=False
    )
    assert "resumed" in sentence
    obj = await kube.get(kind, namespace, real)
    assert obj["spec"][field[0]] == (True if field[0] == "active" else "None")


async def test_stopping_a_missing_object_reports_not_found(kube: LocalKube) -> None:
    with pytest.raises(CommandError, match="workload team/nobody: not found") as refused:
        await write_steering_field(
            kube, kinds.WORKLOAD, "team", "nobody", stop=True, keep_running=False
        )
    assert refused.value.status == Exit.FAILED
    assert refused.value.hint == "`sluice get workloads -A` lists what there is"


async def test_the_command_writes_through_a_kubeconfig(tmp_path: Path) -> None:
    simulator = Simulator(behaviour=False)
    await simulator.start()
    local = LocalKube(simulator.api)
    await make(local, kinds.CLUSTER_QUEUE, "cq", CLUSTER_QUEUE, namespace=None)
    await make(local, kinds.NAMESPACE, "others", {}, namespace=None)
    queue = {"clusterQueue": "cq"}
    await make(local, kinds.LOCAL_QUEUE, "main", queue, namespace="others")
    kubeconfig = tmp_path / "kubeconfig"
    config = yaml.safe_load(simulator.kubeconfig())
    config["clusters"].append({"name": "dead", "cluster": {"server": "http://127.0.0.1:9"}})
    config["contexts"].append({"name": "dead", "context": {"cluster": "dead", "user": "simulator"}})
    config["current-context"] = "dead"
    kubeconfig.write_text(yaml.safe_dump(config))
    known = {"kubeconfig": str(kubeconfig), "context": "simulator"}
    (tmp_path / "state.json").write_text(json.dumps(known))

    async def run(word: str, name: str = "cq", **more: Any) -> str:
        options: dict[str, Any] = {
            "namespace": "team", "stop": True, "keep_running": False,
            "cluster": ClusterChoice(kubeconfig=kubeconfig, context="simulator"), **more,
        }  # fmt: skip
        return await steer(word, name, **options)

    try:
        assert (await run("cq")).startswith("clusterqueue cq stopped")
        obj = await local.get(kinds.CLUSTER_QUEUE, None, "cq")
        assert obj["spec"]["stopPolicy"] == "HoldAndDrain"
        full = await run("localqueue", "others/main")
        assert full.startswith("localqueue others/main stopped")
        with pytest.raises(CommandError, match="flavors: cannot be stopped"):
            await run("flavors")
        with pytest.raises(CommandError, match="is for queues"):
            await run("wl", keep_running=True)
        with pytest.raises(CommandError, match="--kubeconfig: is needed"):
            await run("cq", cluster=ClusterChoice(directory=tmp_path / "none"))
        with pytest.raises(CommandError, match="the API server does not answer"):
            await run("cq", cluster=ClusterChoice(kubeconfig=kubeconfig))
        again = await run("cq", cluster=ClusterChoice(directory=tmp_path))
        assert again.startswith("clusterqueue cq is stopped already")
    finally:
        await simulator.stop()
