"""`make bench-whatif`: how long a day of 50,000 workloads is played, against less quota than it had.

The day is written as `sluice simulate --save` does, and asked by that command, as its users do. The last
line is ``what if: <workloads> in <wall> s, <CPU> s of CPU, <MiB> MiB``.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

from services.whatif.reading import LOG_PREFIX
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.admissions import Admission, PodSetAssignment
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import Finish, JobRef, PodSet, WorkloadState

CLUSTER: Final = "hub"
TEAM: Final = "team"
DAY: Final = timedelta(days=1)
END: Final = datetime(2026, 1, 5, tzinfo=UTC)
MEDIAN_SECONDS: Final = 270.0
CPUS: Final = (1, 2, 4)
ENOUGH: Final = 0.01
"""CPUs of the day for each workload: with so many, hardly any workload waits."""

TOMORROW: Final = 0.85
"""The share of those CPUs that is left after the change."""

MIB: Final = 1024

Message = WorkloadState | Admission | Observed


def _queue(cpus: int) -> dict[str, Any]:
    """The only ClusterQueue, with that many CPUs."""
    quota = {"name": "cpu", "nominalQuota": str(cpus)}
    flavors = [{"name": "machines", "resources": [quota]}]
    return {
        "apiVersion": kinds.CLUSTER_QUEUE.api_version,
        "kind": kinds.CLUSTER_QUEUE.kind,
        "metadata": {"name": "main"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        },
    }


def _day(count: int, cpus: int, random: Random) -> Iterator[tuple[str, Message]]:
    """The messages that views and logs hold of one day."""
    local = {"spec": {"clusterQueue": "main"}}
    yield "", _observed(kinds.NAMESPACE, TEAM, {})
    yield "", _observed(kinds.RESOURCE_FLAVOR, "machines", {})
    yield "", _observed(kinds.CLUSTER_QUEUE, "main", _queue(cpus))
    yield "", _observed(kinds.LOCAL_QUEUE, "queue", local, TEAM)
    for number in range(count):
        state = _workload(number, END - DAY * (1 - number / count), random)
        began = state.created_at + timedelta(seconds=random.uniform(0, 60))
        runs = timedelta(seconds=MEDIAN_SECONDS * random.lognormvariate(0, 0.6))
        yield LOG_PREFIX, _admission(state, began)
        yield LOG_PREFIX, _finished(state, began + runs)


def _finished(state: WorkloadState, at: datetime) -> WorkloadState:
    finish = Finish(success=True, at=at)
    fields = state.model_dump() | {"phase": "finished", "finish": finish}
    return WorkloadState.model_validate(fields)


def _observed(kind: Kind, name: str, obj: dict[str, Any], namespace: str | None = None) -> Observed:
    return Observed(
        cluster=CLUSTER,
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        kind=kind.kind,
        namespace=namespace,
        name=name,
        uid=name,
        resource_version="1",
        object={**obj, "metadata": {"name": name, "namespace": namespace}},
    )


def _workload(number: int, at: datetime, random: Random) -> WorkloadState:
    name = f"build-{number:06d}"
    owner = JobRef(api_version="batch/v1", kind="Job", plural="jobs", name=name, uid=name)
    requests = {"cpu": str(random.choice(CPUS))}
    return WorkloadState(
        cluster=CLUSTER,
        namespace=TEAM,
        name=name,
        uid=name,
        owner=owner,
        phase="waiting",
        queue="queue",
        priority=random.choice((0, 0, 100)),
        created_at=at,
        pod_sets=[PodSet(name="main", count=1, requests=requests)],
    )


def _admission(state: WorkloadState, at: datetime) -> Admission:
    return Admission(
        cluster=CLUSTER,
        namespace=TEAM,
        name=state.name,
        uid=state.uid,
        state="admitted",
        term=1,
        number=1,
        decided_at=at,
        queue=state.queue,
        cluster_queue="main",
        priority=state.priority,
        pod_sets=[
            PodSetAssignment(
                name=each.name, count=1, flavors={"cpu": "machines"}, usage=each.requests
            )
            for each in state.pod_sets
        ],
    )


def _write(file: Path, messages: Iterator[tuple[str, Message]]) -> None:
    """Write the messages as `sluice simulate --save` does."""
    with file.open("w", encoding="utf-8") as out:
        out.write(json.dumps({"at": END.isoformat()}) + "\n")
        for prefix, message in messages:
            line = {"subject": prefix + message.subject, "body": message.model_dump(mode="json")}
            out.write(json.dumps(line) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Run `sluice simulate` on a generated day; print its result, and its time and memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=50_000, help="of the day")
    parser.add_argument("--seed", type=int, default=1, help="of the day")
    options = parser.parse_args(arguments)
    cpus = max(*CPUS, round(ENOUGH * options.workloads))
    with tempfile.TemporaryDirectory() as folder:
        state, less = Path(folder, "day"), Path(folder, "less.json")
        _write(state, _day(options.workloads, cpus, Random(options.seed)))
        less.write_text(json.dumps(_queue(max(*CPUS, round(TOMORROW * cpus)))), encoding="utf-8")
        asked = ("simulate", "--state", str(state), "--log", "24h", "-f", str(less))
        began = time.monotonic()
        done = subprocess.run(  # noqa: S603 - it is this program itself
            [sys.executable, "-m", "services.ctl.main", *asked], check=False
        )
        wall = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"what if: {options.workloads} in {wall:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of "
        f"CPU, {used.ru_maxrss // MIB} MiB"
    )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
