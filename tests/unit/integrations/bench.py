"""What it costs to look at an object: `python -m tests.unit.integrations.bench` (CPU time).

Each object is asked six questions: held, active, ready, finish, reclaimable, pod sets.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from shared.contracts.kube.kinds import Object
from shared.integrations import JOB, JOB_SET, PIPELINE_RUN
from tests.unit.integrations import functions

OBJECTS = 2000
ROUNDS = 7


def template() -> Object:
    container = {
        "name": "work",
        "image": "registry.example.com/work:1",
        "env": [{"name": f"E{n}", "value": "v" * 10} for n in range(20)],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    return {"spec": {"containers": [container]}}


def job(version: str) -> Object:
    return {
        "metadata": {"name": "x", "uid": "u", "resourceVersion": version},
        "spec": {"suspend": True, "parallelism": 3, "completions": 6, "template": template()},
        "status": {"active": 2, "succeeded": 1, "conditions": [{"type": "Suspended"}]},
    }


def pipeline_run(version: str) -> Object:
    annotations = {"kueue.konflux-ci.dev/requests-linux-arm64": "2"}
    tasks = [{"name": f"t{n}", "params": [{"name": "a", "value": "b" * 30}] * 5} for n in range(20)]
    return {
        "metadata": {"uid": "u", "resourceVersion": version, "annotations": annotations},
        "spec": {"pipelineSpec": {"tasks": tasks}},
        "status": {
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Succeeded", "status": "Unknown"}],
        },
    }


def job_set(version: str) -> Object:
    spec = {"parallelism": 2, "completions": 2, "template": template()}
    names = ("a", "b", "c")
    return {
        "metadata": {"uid": "u", "resourceVersion": version},
        "spec": {
            "replicatedJobs": [
                {"name": n, "replicas": 2, "template": {"spec": spec}} for n in names
            ]
        },
        "status": {"replicatedJobsStatus": [{"name": n, "ready": 1, "active": 1} for n in names]},
    }


def microseconds(ask: Any, objects: list[Object]) -> float:
    """The least that one object took, of some rounds: other processes only add."""
    began = time.process_time()
    for obj in objects:
        ask.held(obj)
        ask.active(obj)
        ask.ready(obj)
        ask.finish(obj)
        ask.reclaimable(obj)
        ask.pod_sets(obj)
    return (time.process_time() - began) / len(objects) * 1e6


def main() -> int:
    cases: list[tuple[str, Any, Any, Callable[[str], Object]]] = [
        ("Job", JOB, functions.JOB, job),
        ("PipelineRun", PIPELINE_RUN, functions.PIPELINE_RUN, pipeline_run),
        ("JobSet", JOB_SET, None, job_set),
    ]
    say = sys.stdout.write
    say(f"{'us of CPU per object':<22}{'functions':>10}{'document':>10}{'again':>10}\n")
    for name, document, plain, make in cases:
        fresh, again, before = [], [], []
        for _ in range(ROUNDS):
            objects = [make(str(number)) for number in range(OBJECTS)]
            fresh.append(microseconds(document, objects))
            again.append(microseconds(document, [objects[-1]] * OBJECTS))
            if plain is not None:
                before.append(microseconds(plain, objects))
        least = f"{min(before):.1f}" if before else "-"
        say(f"{name:<22}{least:>10}{min(fresh):>10.1f}{min(again):>10.1f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
