"""`make bench-startup`: how soon quick commands answer, and the CPU time they take, against a `sluice dev`.

In its simulated cluster 50 Jobs wait in a queue for two. A command has answered with its first line: what
follows a forecast comes later. Beside its CPU time stands how many starts of an empty Python program take as
long: that depends less on the machine. The last line is
``startup: <slowest command> answers after <ms> ms (goal <ms>), <dearest command> takes <CPU ms> ms``; the
status is 1 if the goal is missed.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from statistics import median
from subprocess import PIPE, STDOUT
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from services.ctl.bench.rest import running_dev
from services.ctl.connect.reader import STATE_FILE
from shared.contracts.kube import names
from shared.contracts.kube.bodies import Body, Metadata
from shared.contracts.kube.kinds import CLUSTER_QUEUE, JOB, LOCAL_QUEUE, NAMESPACE, RESOURCE_FLAVOR
from shared.kube.client import HttpKube
from shared.runtime.command import Exit

RUNS: Final = 5
ANSWER_MS: Final = 300
"""Until the first line of each command, on an idle machine with two cores."""

JOBS: Final = 50
WAIT_SECONDS: Final = 20.0
"""From the creation of the Jobs to the first measurement: all are seen and told why they wait."""

_NAME: Final = "bench"
COMMANDS: Final = (
    "--help",
    "get --help",
    "completion bash",
    "status",
    f"get workloads -n {_NAME}",
    "get clusterqueues",
    f"explain {_NAME}/job-9 --no-forecast",
    f"explain {_NAME}/job-9",
    "top --once",
    f"history {_NAME}/job-9",
    "who-preempted",
    "doctor",
    "hosts",
    "dead list",
    "plan -f more.yaml",
    f"resume clusterqueue {_NAME}",
)


def _queue(cpu: int) -> Body:
    quota = {"name": "cpu", "nominalQuota": cpu}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": _NAME, "resources": [quota]}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    return _object("kueue.x-k8s.io/v1beta2", "ClusterQueue", spec)


def _object(api_version: str, kind: str, spec: dict[str, Any], **metadata: Any) -> Body:
    named: Metadata = {"name": _NAME, **metadata}  # type: ignore[typeddict-item]
    return {"apiVersion": api_version, "kind": kind, "metadata": named, "spec": spec}


def _job(number: int) -> Body:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    return _object(
        "batch/v1",
        "Job",
        {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
        name=f"job-{number}",
        namespace=_NAME,
        labels={names.QUEUE: _NAME},
    )


async def _fill(kubeconfig: Path) -> None:
    """A queue for two Jobs, and many that wait in it."""
    queue = _object(
        "kueue.x-k8s.io/v1beta2", "LocalQueue", {"clusterQueue": _NAME}, namespace=_NAME
    )
    kube = HttpKube.from_kubeconfig(str(kubeconfig))
    try:
        await kube.create(NAMESPACE, _object("v1", "Namespace", {}))
        flavor = _object("kueue.x-k8s.io/v1beta2", "ResourceFlavor", {})
        await kube.create(RESOURCE_FLAVOR, flavor)
        await kube.create(CLUSTER_QUEUE, _queue(2))
        await kube.create(LOCAL_QUEUE, queue)
        for number in range(JOBS):
            await kube.create(JOB, _job(number))
    finally:
        await kube.close()


def _cpu_seconds() -> float:
    """User and system time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Taken(NamedTuple):
    """What one run of a command took, in milliseconds."""

    answer: float
    """Until its first line, or its end if it says nothing."""

    cpu: float


def _run(arguments: tuple[str, ...], folder: Path) -> Taken:
    environment = {name: value for name, value in os.environ.items() if name != "NATS_URL"}
    before, began = _cpu_seconds(), time.perf_counter()
    with subprocess.Popen(  # noqa: S603 - it is this program itself
        [sys.executable, *arguments], stdout=PIPE, stderr=STDOUT, cwd=folder, env=environment
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        answer = time.perf_counter() - began
        running.stdout.read()
    return Taken(1000 * answer, 1000 * (_cpu_seconds() - before))


async def measured(runs: int) -> dict[str, Taken]:
    """Medians of each command, and of an empty program under the name ``python``."""
    programs = {name: ("-m", "services.ctl.entry", *name.split()) for name in COMMANDS}
    with TemporaryDirectory(prefix="sluice-startup-") as name:
        folder = Path(name)
        async with running_dev(("--directory", str(folder / ".sluice"))):
            state = json.loads((folder / ".sluice" / STATE_FILE).read_text())
            await _fill(Path(state["kubeconfig"]))
            (folder / "more.yaml").write_text(json.dumps(_queue(4)))
            await asyncio.sleep(WAIT_SECONDS)
            # In turn: what else the machine does is shared by all.
            taken = [
                {
                    name: await asyncio.to_thread(_run, arguments, folder)
                    for name, arguments in {"python": ("-c", "pass"), **programs}.items()
                }
                for _ in range(runs)
            ]
    return {
        name: Taken(*map(median, zip(*(each[name] for each in taken), strict=True)))
        for name in taken[0]
    }


def main() -> int:
    """Run each command several times; print the medians of each; 1 if one answers too late."""
    parser = ArgumentParser(prog="python -m services.ctl.bench.startup", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="how often each command runs")
    parser.add_argument("--ms", type=float, default=ANSWER_MS, help="goal of the slowest answer")
    given = parser.parse_args()
    medians = asyncio.run(measured(given.runs))
    empty = medians.pop("python")
    print(f"{'':<40}{'answer':>9}{'CPU':>9}")
    print(f"{'an empty program':<40}{empty.answer:>6.0f} ms{empty.cpu:>6.0f} ms")
    for name, taken in medians.items():
        times = f"{taken.cpu / empty.cpu:>7.1f} x"
        print(f"sluice {name:<33}{taken.answer:>6.0f} ms{taken.cpu:>6.0f} ms{times}")
    slowest = max(medians, key=lambda name: medians[name].answer)
    dearest = max(medians, key=lambda name: medians[name].cpu)
    late = medians[slowest].answer
    print(
        f"startup: sluice {slowest} answers after {late:.0f} ms (goal {given.ms:.0f}), "
        f"sluice {dearest} takes {medians[dearest].cpu:.0f} ms"
    )
    return Exit.OK if late <= given.ms else Exit.FAILED


if __name__ == "__main__":
    sys.exit(main())
