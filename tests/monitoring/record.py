"""Record what a short run of the whole system tells Prometheus: `python -m tests.monitoring.record`.

A hub and a spoke with the example's queues run for a minute: PipelineRuns, Jobs and machines, work for
the spoke, a queue that is drained, and a Job that another one preempts. All are to have their pods ready
in time. The process's own figures (`process_…`, `python_…`) are left out.
"""

import asyncio
import json
import os
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from services.ctl.demo.create import create_all
from services.ctl.demo.load import Arrival, make_load
from services.ctl.demo.spokes import spokes_load
from services.ctl.dev.app import EXAMPLE, DevOptions, Running, running
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL, QUEUE
from shared.contracts.simulation import DURATION
from shared.kube.client import HttpKube
from shared.kube.port import UnavailableError
from tests.e2e.otlp_receiver import receiver
from tests.monitoring.recording import NAME, Labels, write

SCRAPES: Final = 13
STEP_SECONDS: Final = 5.0
DRAINED: Final = "cluster-batch-queue"
DRAIN_AT: Final = 3
RESUME_AT: Final = 5
RUNS: Final = 256
JOBS: Final = 128
FOR_SPOKES: Final = 8
TENANTS: Final = frozenset({"alpha-tenant", "mintmaker"})
CONTENDED: Final = "contended"
CONTENDED_QUEUE: Final = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: contended}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: batch-flavor, resources: [{name: cpu, nominalQuota: 1}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: contended, namespace: alpha-tenant}
spec: {clusterQueue: contended}
"""
CONFIGURATION: Final = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
waitForPodsReady: {timeout: 10m}
"""
OWN: Final = ("process_", "python_")
SPOKE: Final = "-spoke-"


def arrivals() -> list[Arrival]:
    """What is created: for one tenant of the example, and for the spoke."""
    here = [
        arrival
        for arrival in make_load(seed=1, runs=RUNS, jobs=JOBS)
        if arrival.object["metadata"]["namespace"] in TENANTS
    ]
    away = [arrival for arrival in spokes_load(1) if arrival.kind is kinds.JOB]
    both = [contender("konflux-dependency-update", 5.0), contender("konflux-release", 15.0)]
    every = [*here, *away[:FOR_SPOKES], *both]
    return sorted(every, key=lambda arrival: arrival.after_seconds)


def contender(priority_class: str, after_seconds: float) -> Arrival:
    """A Job that takes the whole of the queue in which the stronger preempts the weaker."""
    container = {"name": "work", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {
        "metadata": {"annotations": {DURATION: "1200s"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    job: Body = {
        "apiVersion": kinds.JOB.api_version,
        "kind": kinds.JOB.kind,
        "metadata": {
            "namespace": "alpha-tenant",
            "name": f"contender-{priority_class}",
            "labels": {QUEUE: CONTENDED, PRIORITY_CLASS_LABEL: priority_class},
        },
        "spec": {"template": template},
    }
    return Arrival(after_seconds=after_seconds, kind=kinds.JOB, object=job, tier=priority_class)


def targets(logs: Path) -> dict[str, str]:
    """Process to the address that its log says `/metrics` has."""
    found = {}
    for path in logs.glob("*.log"):
        for line in path.read_text().splitlines():
            if line.startswith("{") and "health" in (said := json.loads(line)):
                found[path.stem] = said["health"].removesuffix("/readyz")
    return found


def scrape(addresses: Mapping[str, str]) -> dict[Labels, float]:
    """What Prometheus would store of all targets: each sample with `job` and `instance`, and `up`."""
    found: dict[Labels, float] = {}
    for process, address in sorted(addresses.items()):
        where = {"job": process.partition(SPOKE)[0], "instance": f"{process}:8081"}
        with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found[frozenset({NAME: "up", **where}.items())] = 1.0
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not sample.name.startswith(OWN) and not sample.name.endswith("_created"):
                    labels = {NAME: sample.name, **sample.labels, **where}
                    found[frozenset(labels.items())] = sample.value
    return found


def look(url: str) -> None:
    """Ask the console for its page, as a browser does."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        answer.read()


async def drain(kube: HttpKube, policy: str) -> None:
    """Stop a ClusterQueue, or let it go on."""
    await kube.patch(kinds.CLUSTER_QUEUE, None, DRAINED, {"spec": {"stopPolicy": policy}})


async def record(system: Running) -> list[dict[Labels, float]]:
    """Scrape while the load runs."""
    kube = system.kube()
    try:
        creating = asyncio.create_task(
            create_all(kube, arrivals(), now=lambda: datetime.now(UTC), on_submitted=lambda _: None)
        )
        scrapes = []
        for index in range(SCRAPES):
            if index in {DRAIN_AT, RESUME_AT}:
                await drain(kube, "HoldAndDrain" if index == DRAIN_AT else "None")
            await asyncio.to_thread(look, system.console_url)
            scrapes.append(await asyncio.to_thread(scrape, targets(system.logs)))
            await asyncio.sleep(STEP_SECONDS)
        await creating
    finally:
        await kube.close()
    return scrapes


async def main() -> int:
    """Write the recording anew."""
    with tempfile.TemporaryDirectory() as folder, receiver() as collector:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.endpoint
        here = Path(folder)
        (configuration := here / "configuration.yaml").write_text(CONFIGURATION)
        os.environ["SLUICE_CONFIGURATION"] = str(configuration)
        (queue := here / "queue.yaml").write_text(CONTENDED_QUEUE)
        options = DevOptions(
            directory=here / "dev",
            manifests=(EXAMPLE, queue),
            rules=EXAMPLE / "classifier",
            spokes=1,
        )
        try:
            async with running(options, lambda _: None) as system:
                scrapes = await record(system)
        except UnavailableError as error:
            sys.exit(f"the simulated cluster does not answer: {error}")
    write(scrapes, step_seconds=STEP_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
