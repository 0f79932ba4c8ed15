"""The simulator under a stock ``kubectl``. Skipped where that is not on the PATH."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest

from services.simulator.app import Simulator
from shared.testing.waiting import PATIENCE_SECONDS

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on the PATH")

SEEDS = Path(__file__).parents[3] / "deploy" / "examples" / "seeds"
MANIFEST = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: main}
spec: {cohort: all, namespaceSelector: {}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: team, namespace: default}
spec: {clusterQueue: main}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sleep, namespace: default, annotations: {team: red}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox}]
---
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: build, namespace: default}
spec: {status: PipelineRunPending, pipelineSpec: {tasks: [{name: a}]}}
"""


@dataclass(frozen=True, kw_only=True)
class Output:
    code: int
    out: str
    err: str


class Kubectl:
    """Runs kubectl against one simulator, with a cache of its own."""

    def __init__(self, folder: Path, simulator: Simulator) -> None:
        self.folder = folder
        self.simulator = simulator
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.write_text(simulator.kubeconfig(), encoding="utf-8")

    async def start(self, *arguments: str, stdin: str = "") -> asyncio.subprocess.Process:
        assert KUBECTL is not None
        process = await asyncio.create_subprocess_exec(
            KUBECTL,
            f"--kubeconfig={self._kubeconfig}",
            f"--cache-dir={self.folder}/cache",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write(stdin.encode())
        process.stdin.close()
        return process

    async def ask(self, *arguments: str, stdin: str = "") -> Output:
        """Run to the end, whatever that is."""
        process = await self.start(*arguments, stdin=stdin)
        out, err = await process.communicate()
        return Output(code=process.returncode or 0, out=out.decode(), err=err.decode())

    async def run(self, *arguments: str, stdin: str = "") -> str:
        """Run what must succeed; return what it printed."""
        output = await self.ask(*arguments, stdin=stdin)
        assert output.code == 0, output.err
        return output.out

    async def get(self, *arguments: str) -> Any:
        return orjson.loads(await self.run("get", *arguments, "-o", "json"))


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    simulator = Simulator(speed=60)
    await simulator.start()
    yield Kubectl(tmp_path, simulator)
    await simulator.stop()


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines() if line]


async def test_manifests_are_applied_changed_and_applied_again(kubectl: Kubectl) -> None:
    created = await kubectl.run("apply", "-f", "-", stdin=MANIFEST)
    again = await kubectl.run("apply", "-f", "-", stdin=MANIFEST)
    changed = await kubectl.run("apply", "-f", "-", stdin=MANIFEST.replace("red", "blue"))

    assert created.count(" created") == 4
    assert again.count(" unchanged") == 4
    assert "job.batch/sleep configured" in changed
    assert (await kubectl.get("job", "sleep"))["metadata"]["annotations"]["team"] == "blue"


async def test_short_names_print_tables_with_the_columns_of_kueue(kubectl: Kubectl) -> None:
    await kubectl.run("apply", "-f", "-", stdin=MANIFEST)

    queues = rows(await kubectl.run("get", "cq"))
    wide = rows(await kubectl.run("get", "cq", "-o", "wide"))
    local = rows(await kubectl.run("get", "lq", "-A"))

    assert queues == [["NAME", "COHORT", "PENDING", "WORKLOADS"], ["main", "all"]]
    assert wide[0][2] == "STRATEGY"
    assert local[1][:3] == ["default", "team", "main"]
    assert rows(await kubectl.run("get", "workloads"))[0:1] == []


async def test_objects_are_described(kubectl: Kubectl) -> None:
    await kubectl.run("apply", "-f", "-", stdin=MANIFEST)

    assert "Suspend:          true" in await kubectl.run("describe", "job", "sleep")
    assert "Cohort Name:  all" in await kubectl.run("describe", "cq", "main")


async def test_every_patch_type_is_applied(kubectl: Kubectl) -> None:
    await kubectl.run("apply", "-f", "-", stdin=MANIFEST)
    labels = '{"metadata":{"labels":{"a":"b"}}}'
    test = '{"op":"test","path":"/metadata/labels/a","value":"b"}'
    remove = f'[{test},{{"op":"remove","path":"/metadata/labels/a"}}]'

    await kubectl.run("patch", "job", "sleep", "-p", labels)
    await kubectl.run("patch", "pipelinerun", "build", "--type=merge", "-p", labels)
    await kubectl.run("patch", "pipelinerun", "build", "--type=json", "-p", remove)
    refused = await kubectl.ask("patch", "pr", "build", "--type=json", "-p", remove)

    assert (await kubectl.get("job", "sleep"))["metadata"]["labels"] == {"a": "b"}
    assert "labels" not in (await kubectl.get("pipelinerun", "build"))["metadata"]
    assert refused.code == 1
    assert "The request is invalid" in refused.err


async def test_labels_annotations_and_selectors_work_in_kubectl(kubectl: Kubectl) -> None:
    await kubectl.run("apply", "-f", "-", stdin=MANIFEST)
    await kubectl.run("label", "job", "sleep", "tier=gold")
    await kubectl.run("annotate", "pipelinerun", "build", "note=hello")

    assert "sleep" in await kubectl.run("get", "jobs", "-l", "tier=gold")
    assert "sleep" not in await kubectl.run("get", "jobs", "-l", "tier!=gold")
    assert (await kubectl.get("pr", "build"))["metadata"]["annotations"]["note"] == "hello"


async def test_released_run_can_be_waited_for_and_deleted(kubectl: Kubectl) -> None:
    await kubectl.run("apply", "-f", "-", stdin=MANIFEST)
    release = '[{"op":"remove","path":"/spec/status"}]'
    await kubectl.run("patch", "pr", "build", "--type=json", "-p", release)

    await kubectl.run("wait", "pr/build", "--for=condition=Succeeded", "--timeout=60s")
    assert "Succeeded" in await kubectl.run("get", "pr")
    await kubectl.run("delete", "pr", "build", "--timeout=60s")
    assert "Error from server (NotFound)" in (await kubectl.ask("get", "pr", "build")).err


async def test_namespace_with_its_content_is_deleted(kubectl: Kubectl) -> None:
    await kubectl.run("create", "namespace", "team")
    await kubectl.run("create", "configmap", "c", "-n", "team", "--from-literal=k=v")
    await kubectl.run("create", "secret", "generic", "s", "-n", "team", "--from-literal=k=v")
    assert (await kubectl.get("secret", "s", "-n", "team"))["data"] == {"k": "dg=="}

    await kubectl.run("delete", "namespace", "team", "--timeout=60s")

    assert (await kubectl.ask("get", "configmaps", "-n", "team")).out == ""
    assert (await kubectl.ask("get", "ns", "team")).code == 1


async def test_kubectl_shows_refusals_of_the_server(kubectl: Kubectl) -> None:
    bad = MANIFEST.replace("name: main}", "name: Main}", 1)
    neither = MANIFEST.replace(", pipelineSpec: {tasks: [{name: a}]}", "")

    assert 'Invalid value: "Main"' in (await kubectl.ask("apply", "-f", "-", stdin=bad)).err
    said = (await kubectl.ask("apply", "-f", "-", stdin=neither)).err
    assert "expected exactly one, got neither" in said


async def test_watch_shows_rows_as_they_change(kubectl: Kubectl) -> None:
    await kubectl.run("apply", "-f", "-", stdin=MANIFEST)
    process = await kubectl.start("get", "jobs", "--watch-only")
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        first = asyncio.create_task(process.stdout.readline())
        for number in count():
            if first.done():
                break
            # Nobody says from when on it watches.
            await kubectl.run("label", "job", "sleep", f"number={number}", "--overwrite")
        header = (await first).split()
        row = (await process.stdout.readline()).split()
    process.terminate()
    await process.communicate()

    assert header[:2] == [b"NAME", b"SUSPENDED"]
    assert row[:2] == [b"sleep", b"true"]


async def test_resources_are_listed_and_explained_by_name(kubectl: Kubectl) -> None:
    listed = await kubectl.run("api-resources", "--api-group=kueue.x-k8s.io", "-o", "name")

    assert "clusterqueues.kueue.x-k8s.io" in listed.split()
    assert "KIND:       ClusterQueue" in await kubectl.run("explain", "clusterqueues")
    assert "Server Version: v1.33.0" in await kubectl.run("version")


async def test_fields_are_explained_in_both_versions(kubectl: Kubectl) -> None:
    said = await kubectl.run("explain", "clusterqueue.spec.preemption")
    assert "FIELD: preemption <Object>" in said
    assert "reclaimWithinCohort" in said
    assert "enum: Never, LowerPriority, Any" in said

    older = ("--api-version=kueue.x-k8s.io/v1beta1", "clusterqueue.spec.cohort")
    assert "FIELD: cohort <string>" in await kubectl.run("explain", *older)
    assert (await kubectl.ask("explain", "clusterqueue.spec.cohort")).code == 1
    assert "FIELD: apiVersion <string>" in await kubectl.run("explain", "lq.apiVersion")
    assert "DESCRIPTION" in await kubectl.run("explain", "job")


async def test_seeds_apply_and_are_listed_with_kueues_columns(kubectl: Kubectl) -> None:
    created = await kubectl.run("apply", "-f", str(SEEDS))
    again = await kubectl.run("apply", "-f", str(SEEDS))
    tekton = await kubectl.run("apply", "-f", str(SEEDS / "tekton"))

    objects = created.count(" created")
    assert objects == created.count("\n") > 20
    assert again.count(" unchanged") == objects
    assert tekton.count(" created") == tekton.count("\n") > 0
    blocks = (await kubectl.run("get", "cq,lq,workloads", "-n", "team-a")).split("\n\n")
    assert [" ".join(block.splitlines()[0].split()) for block in blocks] == [
        "NAME COHORT PENDING WORKLOADS",
        "NAME CLUSTERQUEUE PENDING WORKLOADS ADMITTED WORKLOADS",
        "NAME QUEUE RESERVED IN ADMITTED FINISHED AGE",
    ]
    cohorts = [line.split()[:2] for line in blocks[0].splitlines()[1:]]
    assert ["clusterqueue.kueue.x-k8s.io/team-a", "research"] in cohorts
