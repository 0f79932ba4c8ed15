"""PipelineRuns in all four coscheduling modes, on a few nodes that are cordoned and uncordoned.

Checked at each scheduling of a pod: the pods of a run are on their placeholder's node, and no isolated
run shares its node. In the end all runs have ended and no placeholder is left.
"""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from services.simulator.cluster.kinds.catalogue import (
    CLAIMS,
    NODES,
    PIPELINERUNS,
    PODS,
    STATEFUL_SETS,
)
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Event, Stored
from services.simulator.judge import checks
from services.simulator.scenarios.basic import play_with_faults
from services.simulator.scenarios.load import object_of
from services.simulator.scenarios.port import Verdict
from services.simulator.scenarios.system import System
from shared.contracts import coscheduling
from shared.contracts.coscheduling import (
    AFFINITY_ANNOTATION,
    COSCHEDULED_RUN_LABEL,
    FEATURE_FLAGS,
    INSTANCE_LABEL,
    NODE_SLOTS,
    RUN_UID_LABEL,
)
from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.names import REQUIRED_WHILE_SCHEDULING
from shared.contracts.simulation import DURATION, RUN_IN_PODS
from shared.integrations import TEKTON_SLOT
from shared.kube.port import KubeError, NotFoundError

NAMESPACES: Final = ("team-a", "team-b")
LOAD_SECONDS: Final = 60.0
MEDDLING_SECONDS: Final = 90.0
END_SECONDS: Final = 1800.0
SETTLE_SECONDS: Final = 60.0
ISOLATED: Final = "isolate-pipelinerun"


def play(seed: int) -> Verdict:
    """Run the world of `seed`; return its verdict."""
    return play_with_faults("coscheduling", seed, _drive)


async def _drive(system: System, random: Random, verdict: Verdict) -> None:
    for kind, obj in _cluster_objects(random):
        await system.kube.create(kind, obj)
    watch = _PlacementObserver(system)
    for service in ("watcher", "classifier", "quota", "patcher"):
        system.serve(service)
    system.start_faults()
    meddling = asyncio.create_task(_disturb(system, random))
    submitted = await _submit(system, random)
    deleted = await meddling
    ended = await _until_ended(system, submitted)
    if ended:
        await asyncio.sleep(SETTLE_SECONDS)
    message_logs = system.message_logs()
    for check in checks.ALWAYS:
        verdict.violated(check(message_logs))
    runs = {uid: name for name, uid in submitted.items() if uid not in deleted}
    verdict.violated(checks.none_lost(message_logs, runs, finished=ended))
    verdict.violated(watch.problems)
    verdict.violated(_left_behind(system))
    if ended:
        verdict.violated(checks.quota_given_back(message_logs))
    else:
        left = ", ".join(_unended(system, submitted))
        verdict.problems.append(f"after {END_SECONDS:g} s these have not ended: {left}")
    if not watch.judged:
        verdict.problems.append("no pod was placed: nothing was judged")


# --- what there is ---------------------------------------------------------------------------------


def _cluster_objects(random: Random) -> Iterator[tuple[kinds.Kind, Body]]:
    for name in (*NAMESPACES, "tekton-pipelines"):
        yield kinds.NAMESPACE, object_of(kinds.NAMESPACE, name)
    yield (
        kinds.CONFIG_MAP,
        object_of(
            kinds.CONFIG_MAP,
            FEATURE_FLAGS,
            namespace="tekton-pipelines",
            data={"coschedule": "disabled"},
        ),
    )
    yield kinds.RESOURCE_FLAVOR, object_of(kinds.RESOURCE_FLAVOR, "nodes", spec={})
    resources = [
        {"name": TEKTON_SLOT, "nominalQuota": str(random.randint(3, 8))},
        # More slots than nodes: the scheduler's anti-affinity must hold as well.
        {"name": NODE_SLOTS, "nominalQuota": str(random.randint(1, 5))},
    ]
    group = {
        "coveredResources": [TEKTON_SLOT, NODE_SLOTS],
        "flavors": [{"name": "nodes", "resources": resources}],
    }
    spec = {
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "resourceGroups": [group],
    }
    yield kinds.CLUSTER_QUEUE, object_of(kinds.CLUSTER_QUEUE, "pipelines", spec=spec)
    for namespace in NAMESPACES:
        yield (
            kinds.LOCAL_QUEUE,
            object_of(
                kinds.LOCAL_QUEUE,
                "pipelines-queue",
                namespace=namespace,
                spec={"clusterQueue": "pipelines"},
            ),
        )


def _run(number: int, random: Random) -> Body:
    mode = random.choice((None, *coscheduling.MODES, ISOLATED, "pipelineruns"))
    claims = random.sample(("src", "cache"), random.randint(0, 2))
    used = 1 if mode == "workspaces" else 2  # That mode refuses two claims in one task.
    tasks: list[dict[str, Any]] = []
    for index in range(random.randint(1, 3)):
        task: dict[str, Any] = {"name": f"task-{index}", "taskSpec": {"steps": [{"name": "work"}]}}
        mine = random.sample(claims, min(len(claims), random.randint(0, used)))
        task["workspaces"] = [{"name": one} for one in mine]
        if index and random.random() < 2 / 3:
            task["runAfter"] = [f"task-{index - 1}"]
        tasks.append(task)
    # A task with two claims needs coscheduling, or its volumes are on different nodes.
    modes = ["ReadWriteOnce"] if mode in coscheduling.PER_RUN else ["ReadWriteMany"]
    template = {"spec": {"accessModes": modes, "storageClassName": "network"}}
    run = object_of(
        kinds.PIPELINE_RUN,
        f"run-{number}",
        namespace=random.choice(NAMESPACES),
        spec={
            "pipelineSpec": {"tasks": tasks},
            "workspaces": [{"name": one, "volumeClaimTemplate": template} for one in claims],
        },
    )
    annotations = {DURATION: f"{random.randint(3, 60)}s", RUN_IN_PODS: "true"}
    if mode is not None:
        annotations[names.COSCHEDULE] = mode
    run["metadata"]["annotations"] = annotations
    return run


# --- what happens ----------------------------------------------------------------------------------


async def _submit(system: System, random: Random) -> dict[str, str]:
    """Create the runs; return namespace and name of each with its uid."""
    submitted: dict[str, str] = {}
    for number in range(random.randint(5, 14)):
        await asyncio.sleep(random.uniform(0, LOAD_SECONDS / 8))
        created = await system.kube.create(kinds.PIPELINE_RUN, _run(number, random))
        metadata = created["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        system.world.note(f"submit {name} {metadata['annotations'].get(names.COSCHEDULE)}")
        submitted[name] = metadata["uid"]
    return submitted


async def _disturb(system: System, random: Random) -> set[str]:
    """Cordon and uncordon nodes, cancel and delete runs. Returns the uids of the deleted runs."""
    deleted: set[str] = set()
    loop = asyncio.get_running_loop()
    patience = random.choice((4.0, 10.0, 1000.0))
    while True:
        at = loop.time() + random.expovariate(1 / patience)
        if at >= MEDDLING_SECONDS:
            return deleted
        await asyncio.sleep(at - loop.time())
        if random.random() < 2 / 3:
            await _cordon_one(system, random)
        elif random.random() < 1 / 2:
            await _cancel_one(system, random)
        else:
            deleted |= await _delete_one(system, random)


async def _cordon_one(system: System, random: Random) -> None:
    """Cordon a node, if possible one with a placeholder; never the last, so that runs can end."""
    nodes = [stored.obj for stored in system.api.store.objects(NODES)]
    free = [one for one in nodes if not (one.get("spec") or {}).get("unschedulable")]
    if len(free) == 1:
        await _cordon(system, random.choice([one for one in nodes if one not in free]), off=True)
        return
    placed = {
        _node(p) for p in system.api.store.objects(PODS) if COSCHEDULED_RUN_LABEL in _labels(p)
    }
    best = [one for one in free if one["metadata"]["name"] in placed]
    await _cordon(system, random.choice(best or free), off=False)


async def _cordon(system: System, node: Obj, *, off: bool) -> None:
    name = node["metadata"]["name"]
    system.world.note(f"{'uncordon' if off else 'cordon'} {name}")
    patch = {"spec": {"unschedulable": None if off else True}}
    await system.kube.patch(kinds.NODE, None, name, patch)


async def _cancel_one(system: System, random: Random) -> None:
    runs = system.api.store.objects(PIPELINERUNS)
    if not runs:
        return
    run = random.choice(runs)
    if (run.obj.get("status") or {}).get("completionTime"):
        return
    system.world.note(f"cancel {run.namespace}/{run.name}")
    try:
        await system.kube.patch(
            kinds.PIPELINE_RUN, run.namespace, run.name, {"spec": {"status": "Cancelled"}}
        )
    except KubeError as error:
        system.world.note(f"refused: {error}")


async def _delete_one(system: System, random: Random) -> set[str]:
    runs = system.api.store.objects(PIPELINERUNS)
    if not runs:
        return set()
    run = random.choice(runs)
    system.world.note(f"delete {run.namespace}/{run.name}")
    try:
        await system.kube.delete(kinds.PIPELINE_RUN, run.namespace, run.name)
    except NotFoundError:
        return set()
    return {run.uid}


def _unended(system: System, submitted: dict[str, str]) -> Iterator[str]:
    for name in submitted:
        run = system.api.store.get(PIPELINERUNS, *name.split("/"))
        if run is not None and not (run.obj.get("status") or {}).get("completionTime"):
            yield name


async def _until_ended(system: System, submitted: dict[str, str]) -> bool:
    loop = asyncio.get_running_loop()
    while loop.time() < END_SECONDS:
        if system.world.calm and next(_unended(system, submitted), None) is None:
            return True
        await asyncio.sleep(1.0)
    return False


# --- what is judged --------------------------------------------------------------------------------


class _PlacementObserver:
    """Checks every pod that gets a node."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.problems: list[str] = []
        self.judged = 0
        system.api.store.subscribe(PODS, self._on_event)

    def _on_event(self, event: Event) -> None:
        before, pod = event.before, event.stored
        if before is None or before.obj["spec"].get("nodeName"):
            return
        if event.type == "DELETED" or not pod.obj["spec"].get("nodeName"):
            return
        self.judged += 1
        there = [one for one in self._living() if _node(one) == _node(pod)]
        self._together(pod)
        self._alone(pod, there)

    def _living(self) -> list[Stored]:
        return [
            pod
            for pod in self._system.api.store.objects(PODS)
            if pod.obj["spec"].get("nodeName")
            and (pod.obj.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}
        ]

    def _together(self, pod: Stored) -> None:
        """Check that the pod of a task with a placeholder is on the placeholder's node."""
        task = next(
            (o for o in pod.obj["metadata"].get("ownerReferences") or () if o["kind"] == "TaskRun"),
            None,
        )
        owner = None if task is None else self._system.api.store.by_uid(task["uid"])
        if owner is None:
            return
        annotations = owner.obj["metadata"].get("annotations") or {}
        mode = annotations.get(names.COSCHEDULE)
        placeholder = annotations.get(AFFINITY_ANNOTATION)
        claims = owner.obj["spec"].get("workspaces")
        if placeholder is None and (
            mode in coscheduling.PER_RUN or (mode == "workspaces" and claims)
        ):
            self.problems.append(f"{pod.name}, of a run in mode {mode}, follows no placeholder")
        if placeholder is None:
            return
        placeholders = [p for p in self._living() if _labels(p).get(INSTANCE_LABEL) == placeholder]
        if _node(pod) not in {_node(one) for one in placeholders}:
            self.problems.append(f"{pod.name} goes to {_node(pod)}, where its placeholder is not")

    def _alone(self, pod: Stored, there: list[Stored]) -> None:
        for placeholder in there:
            uid = _labels(placeholder).get(COSCHEDULED_RUN_LABEL)
            if uid is None or not _is_isolated(placeholder.obj):
                continue
            strangers = [one.name for one in there if _run_of(one) not in {None, uid}]
            if strangers:
                self.problems.append(
                    f"{_node(pod)} belongs to {placeholder.name} alone, and has {', '.join(strangers)}"
                )


def _is_isolated(placeholder: Obj) -> bool:
    away = (placeholder["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    return REQUIRED_WHILE_SCHEDULING in away


def _labels(pod: Stored) -> dict[str, str]:
    labels: dict[str, str] = pod.obj["metadata"].get("labels") or {}
    return labels


def _run_of(pod: Stored) -> str | None:
    return _labels(pod).get(COSCHEDULED_RUN_LABEL) or _labels(pod).get(RUN_UID_LABEL)


def _node(pod: Stored) -> str:
    node: str = pod.obj["spec"].get("nodeName", "")
    return node


def _left_behind(system: System) -> list[str]:
    """Return placeholders of ended runs, and claims that should be deleted with them."""
    store = system.api.store
    left = [
        f"{one.kind.kind} {one.name}"
        for kind in (STATEFUL_SETS, PODS)
        for one in store.objects(kind)
        if (uid := _labels(one).get(COSCHEDULED_RUN_LABEL)) is not None and _over(system, uid)
    ]
    for claim in store.objects(CLAIMS):
        uid = claim.obj["metadata"]["ownerReferences"][0]["uid"]
        run = store.by_uid(uid)
        annotations = {} if run is None else run.obj["metadata"].get("annotations") or {}
        kept = run is not None and annotations.get(names.COSCHEDULE) not in coscheduling.PER_RUN
        if _over(system, uid) and not kept:
            left.append(f"claim {claim.name}")
    return [f"left behind: {', '.join(left)}"] if left else []


def _over(system: System, uid: str) -> bool:
    run = system.api.store.by_uid(uid)
    return run is None or bool((run.obj.get("status") or {}).get("completionTime"))
