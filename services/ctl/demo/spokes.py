"""`sluice demo --spokes N`: submits jobs at a hub, shows where they ran, and checks the logs."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any, Final

from services.ctl.connect.bus import connected
from services.ctl.demo.create import Submitted, create_all
from services.ctl.demo.load import Arrival
from services.ctl.dev.app import Running
from services.simulator.judge import checks
from services.simulator.judge.message_logs import LOGS, MessageLogs, read_logs
from shared.bus.follow import stored_entries
from shared.bus.headers import TYPE
from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.simulation import DURATION
from shared.contracts.subjects import Stream
from shared.integrations import integration_for

NAMESPACE: Final = "team-tenant"
QUEUE: Final = "pipelines-queue"
RUNS: Final = 60
JOBS: Final = 40
ARRIVAL_SECONDS: Final = 8.0
STUCK_SECONDS: Final = 90.0
POLL_SECONDS: Final = 0.5
SETTLE_SECONDS: Final = 30.0
COPIES_MAX: Final = 1.1
"""Copies for each workload, on average: the dispatcher knows which spoke has free quota."""


@dataclass(slots=True)
class _DispatchHistory:
    """The orders that spokes received about one workload."""

    offered: dict[str, int] = field(default_factory=dict)
    chosen: dict[str, None] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)
    at_once: int = 0
    """The largest number of spokes on which it was chosen at the same time."""


def spokes_load(seed: int) -> list[Arrival]:
    """PipelineRuns and Jobs for the hub's only queue; equal seeds give equal loads."""
    rng = Random(seed)
    made = [_run(index, rng) for index in range(RUNS)] + [_job(index, rng) for index in range(JOBS)]
    rng.shuffle(made)
    return [
        Arrival(
            after_seconds=ARRIVAL_SECONDS * index / len(made),
            kind=kinds.JOB if obj["kind"] == kinds.JOB.kind else kinds.PIPELINE_RUN,
            object=obj,
            tier="",
        )
        for index, obj in enumerate(made)
    ]


async def run_spokes(
    system: Running, seed: int, *, now: Callable[[], datetime], say: Callable[[str], None]
) -> list[str]:
    """Submit the load, wait, show the distribution; return the names of the checks that failed."""
    arrivals = spokes_load(seed)
    say(f"demo: creating {RUNS} PipelineRuns and {JOBS} Jobs at the hub, seed {seed}")
    submitted: list[Submitted] = []
    kube = system.kube()
    try:
        await create_all(kube, arrivals, now=now, on_submitted=submitted.append)
        stuck = await _until_ended(system, submitted, say)
    finally:
        await kube.close()
    left = await _until_clean(system)
    async with connected(system.nats_url, access=system.access) as bus:
        logs = (*LOGS, Stream.DISPATCHES)
        entries = [entry for log in logs async for entry in stored_entries(bus, log)]
    orders = [Dispatch.decode(e.data) for e in entries if e.headers.get(TYPE) == Dispatch.type]
    names = [spoke.name for spoke in system.spokes]
    say("where they ran:")
    for line in distribution(orders, names):
        say(f"  {line}")
    say("checks, from the logs and the clusters:")
    found = judge(read_logs(entries), orders, submitted, spokes=names, stuck=stuck, left=left)
    for name, wrong in found.items():
        say(f"  {'FAILED ' if wrong else 'ok     '} {name}")
        for sentence in wrong[:5]:
            say(f"            {sentence}")
    return [name for name, wrong in found.items() if wrong]


def distribution(orders: Iterable[Dispatch], spokes: Iterable[str]) -> list[str]:
    """A line for each spoke: how many workloads of which kind ran there."""
    ran = {(o.spoke, o.name): _kind(o) for o in orders if o.state == "chosen"}
    counts = {spoke: Counter(k for (at, _), k in ran.items() if at == spoke) for spoke in spokes}
    most = max((count.total() for count in counts.values()), default=0) or 1
    return [
        f"{spoke:<10} {count.total():4}  {'#' * round(30 * count.total() / most):<30}  "
        f"{count['PipelineRun']} PipelineRuns, {count['Job']} Jobs"
        for spoke, count in counts.items()
    ]


def _kind(order: Dispatch) -> str:
    return "" if order.target is None else order.target.kind


def judge(
    message_logs: MessageLogs,
    orders: Iterable[Dispatch],
    submitted: Iterable[Submitted],
    *,
    spokes: Iterable[str],
    stuck: Iterable[str],
    left: Iterable[str],
) -> dict[str, list[str]]:
    """The faults of each check, by its name."""
    histories: dict[str, _DispatchHistory] = {}
    for order in orders:
        of = histories.setdefault(f"{order.namespace}/{order.name}", _DispatchHistory())
        if order.state == "offered":
            of.offered[order.spoke] = of.offered.get(order.spoke, 0) + 1
        of.open[order.spoke] = order.state
        if order.state == "chosen":
            of.chosen[order.spoke] = None
        running = [spoke for spoke, state in of.open.items() if state == "chosen"]
        of.at_once = max(of.at_once, len(running))
    copies = sum(sum(of.offered.values()) for of in histories.values())
    wanted = {one.uid: one.name for one in submitted if one.object is not None}
    refused = [f"{one.name} was refused: {one.refusal}" for one in submitted if one.object is None]
    used = {spoke for of in histories.values() for spoke in of.chosen}
    return {
        "nothing lost: everything submitted ran to its end on a spoke": [
            *refused,
            *(f"{name} has not ended" for name in stuck),
            *checks.none_lost(message_logs, wanted, finished=True),
            *checks.nothing_dead(message_logs),
            *(f"{name} was chosen nowhere" for name, of in histories.items() if not of.chosen),
            *(
                []
                if len(histories) == len(wanted)
                else [f"{len(histories)} of {len(wanted)} were sent away"]
            ),
        ],
        "nobody ran on two spokes": [
            f"{name} was chosen on {of.at_once} spokes at once"
            for name, of in histories.items()
            if of.at_once > 1
        ],
        "no quota exceeded, neither the hub's nor a spoke's": checks.quotas_respected(message_logs),
        "nothing ran without quota, and all quota was given back": [
            *checks.none_runs_without_leave(message_logs),
            *checks.quota_given_back(message_logs),
        ],
        f"at most {COPIES_MAX} copies were made for a workload, on average": (
            [f"{copies} copies for {len(histories)} workloads"]
            if copies > COPIES_MAX * max(1, len(histories))
            else []
        ),
        "every spoke had a share": [f"{one} ran nothing" for one in spokes if one not in used],
        "no copy is left behind": list(left),
    }


async def _until_ended(
    system: Running, submitted: list[Submitted], say: Callable[[str], None]
) -> list[str]:
    """Wait until all jobs have ended at the hub; return those that make no progress."""
    loop = asyncio.get_running_loop()
    since, before, printed_at = loop.time(), -1, 0.0
    kube = system.kube()
    try:
        while True:
            left = []
            for kind in (kinds.JOB, kinds.PIPELINE_RUN):
                integration = integration_for(group=kind.group, kind=kind.kind)
                assert integration is not None
                found = (await kube.list(kind, namespace=NAMESPACE)).items
                left += [
                    f"{kind.kind} {obj['metadata']['name']}"
                    for obj in found
                    if integration.finish(obj) is None
                ]
            if len(left) != before:
                before, since = len(left), loop.time()
            if loop.time() - printed_at > 5:
                printed_at = loop.time()
                say(f"  {len(submitted) - len(left)} of {len(submitted)} have ended")
            if not left:
                say(f"  {len(submitted)} of {len(submitted)} have ended")
                return left
            if loop.time() - since > STUCK_SECONDS:
                return left
            await asyncio.sleep(POLL_SECONDS)
    finally:
        await kube.close()


async def _until_clean(system: Running) -> list[str]:
    """Wait until the copies are deleted; return what is left in the end."""
    loop = asyncio.get_running_loop()
    until = loop.time() + SETTLE_SECONDS
    while True:
        left = []
        for spoke in system.spokes:
            kube = spoke.kube()
            try:
                for kind in (kinds.JOB, kinds.PIPELINE_RUN):
                    found = (await kube.list(kind, labels=ORIGIN)).items
                    left += [f"{kind.kind} {o['metadata']['name']} on {spoke.name}" for o in found]
            finally:
                await kube.close()
        if not left or loop.time() > until:
            return left
        await asyncio.sleep(POLL_SECONDS)


def _run(index: int, rng: Random) -> Body:
    step: dict[str, Any] = {"name": "work", "image": "registry.example/work:1"}
    return {
        "apiVersion": kinds.PIPELINE_RUN.api_version,
        "kind": kinds.PIPELINE_RUN.kind,
        "metadata": {
            "namespace": NAMESPACE,
            "name": f"build-{index:03d}",
            "annotations": {DURATION: f"{rng.uniform(60, 240):.0f}s"},
        },
        "spec": {"pipelineSpec": {"tasks": [{"name": "build", "taskSpec": {"steps": [step]}}]}},
    }


def _job(index: int, rng: Random) -> Body:
    container: dict[str, Any] = {
        "name": "work",
        "image": "registry.example/batch:1",
        "resources": {"requests": {"cpu": str(rng.choice((1, 1, 2)))}},
    }
    template = {
        "metadata": {"annotations": {DURATION: f"{rng.uniform(60, 240):.0f}s"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": kinds.JOB.api_version,
        "kind": kinds.JOB.kind,
        "metadata": {
            "namespace": NAMESPACE,
            "name": f"batch-{index:03d}",
            "labels": {names.QUEUE: QUEUE},
        },
        "spec": {
            "managedBy": MULTIKUEUE,
            "parallelism": 1,
            "completions": 1,
            "template": template,
        },
    }
