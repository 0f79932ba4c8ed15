"""`sluice uninstall`: gives a cluster back. Running jobs go on; waiting jobs start, or stay suspended.

1. The webhook configurations go first: while they exist and nobody answers, every new job is refused.
2. The services are scaled to zero. One that runs would put finalizers back, and suspend jobs again.
3. Our finalizers leave Workloads, queues, copies and TaskRuns, so that all of them can be deleted.
4. With `--waiting release` the jobs that wait are started, the oldest first.

Each step can be repeated: what is done is not in the next plan. A plan writes nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from services.ctl.connect.cluster import ClusterChoice, refused
from services.ctl.connect.progress import Note, progress
from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import Body, annotations_of, labels_of, spec_of, status_of
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.spokes import COPY_FINALIZER
from shared.contracts.multi_platform import FINALIZER as MACHINE_FINALIZER
from shared.integrations import (
    INTEGRATIONS,
    Integration,
    IntegrationError,
    Integrations,
    ObjectError,
    queue_of,
)
from shared.kube.port import ConflictError, Kube, KubeError, NotFoundError, Patch
from shared.runtime.command import CommandError

Waiting = Literal["release", "leave"]

PART_OF: Final = f"{names.PART_OF_LABEL}=sluicegate"
TRIES_MAX: Final = 5
"""Attempts at an object that others change meanwhile."""

POLL_SECONDS: Final = 1.0
OURS: Final = {
    kinds.WORKLOAD: names.RESOURCE_IN_USE,
    kinds.CLUSTER_QUEUE: names.RESOURCE_IN_USE,
    kinds.RESOURCE_FLAVOR: names.RESOURCE_IN_USE,
    kinds.ADMISSION_CHECK: names.RESOURCE_IN_USE,
    kinds.TASK_RUN: MACHINE_FINALIZER,
}
"""Kinds with a finalizer of ours, beside the kinds of jobs."""


@dataclass(slots=True, kw_only=True)
class UninstallPlan:
    """What is to be done in one cluster, and what stays."""

    webhooks: list[tuple[Kind, Body]] = field(default_factory=list)
    services: list[tuple[Kind, Body]] = field(default_factory=list)
    """Deployments of ours that have replicas."""

    finalizers: list[tuple[Kind, Body, str]] = field(default_factory=list)
    waiting: list[tuple[Integration, Body]] = field(default_factory=list)
    """Jobs that we hold, the oldest first."""

    running: int = 0
    paused: int = 0
    """Suspended by their users: they stay so."""

    elsewhere: int = 0
    """Jobs that MultiKueue runs in another cluster, and copies of another cluster's jobs: the other
    cluster decides about them, so they are never started here."""

    unreadable: list[str] = field(default_factory=list)
    """Integration objects that are refused: their jobs are not looked at."""

    def is_empty(self) -> bool:
        """Whether nothing is left to do, apart from jobs that wait."""
        return not (self.webhooks or self.services or self.finalizers)


async def uninstall(
    *,
    yes: bool,
    waiting: Waiting | None,
    namespace: str,
    wait_seconds: float,
    cluster: ClusterChoice,
    say: Callable[[str], None] = print,
) -> bool:
    """Show the plan, or with `yes` carry it out; return whether everything was done.

    Raises `CommandError` if jobs wait and `waiting` does not say what becomes of them.
    """
    kube = cluster.open()
    try:
        plan = await plan_for(kube, namespace)
        say("\n".join(lines_of(plan, waiting)))
        if not yes:
            return True
        check_choice(plan, waiting)
        with progress("stopping the services") as note:
            problems = await carry_out(
                kube, plan, waiting, namespace=namespace, wait_seconds=wait_seconds, note=note
            )
            note("looking what is left")
            left = await plan_for(kube, namespace)
    except KubeError as error:
        raise refused("uninstall", error) from error
    finally:
        await kube.close()
    if not left.is_empty():
        problems.append(
            "some of it came back or is left: a service of Sluicegate still runs, here or at a hub. "
            "Stop it, and repeat the command"
        )
    if left.waiting and waiting != "leave":
        problems.append(
            f"{len(left.waiting)} job(s) still wait: repeat the command with --waiting release or leave"
        )
    say("\n".join([f"not done: {problem}" for problem in problems] or NEXT))
    return not problems


DEFINITIONS: Final = (
    "This deletes the CustomResourceDefinitions, too, and with them all Workloads and queues. Keep them for "
    "Kueue (`-l app.kubernetes.io/component!=definitions`), and apply Kueue's own, because ours ask the "
    "classifier to convert versions."
)
NEXT: Final = (
    "done. What is left are manifests: delete the overlay that you applied (`kubectl delete -k …`).",
    DEFINITIONS,
)


def choice_of(word: str | None) -> Waiting | None:
    """The value of `--waiting`. Raises `CommandError` for another word."""
    match word:
        case None | "release" | "leave":
            return word
        case _:
            raise CommandError(f"--waiting {word}", "must be release or leave")


def check_choice(plan: UninstallPlan, waiting: Waiting | None) -> None:
    """Raise `CommandError` if jobs wait and no option says what becomes of them."""
    if plan.waiting and waiting is None:
        raise CommandError(
            "--waiting",
            f"must say what becomes of {len(plan.waiting)} waiting job(s)",
            hint="release: start them all at once; leave: keep them suspended, for Kueue or a person",
        )


async def plan_for(kube: Kube, namespace: str) -> UninstallPlan:
    """Look at the cluster. `namespace`: that of the services."""
    served = await kube.served()
    plan = UninstallPlan()
    for kind in (kinds.MUTATING_WEBHOOK, kinds.VALIDATING_WEBHOOK):
        async for obj in _listed(kube, kind, served):
            if obj["metadata"]["name"] in {names.CLASSIFIER_WEBHOOK, names.PODS_WEBHOOK}:
                plan.webhooks.append((kind, obj))
    async for obj in _listed(kube, kinds.DEPLOYMENT, served, namespace, PART_OF):
        if _runs(obj):
            plan.services.append((kinds.DEPLOYMENT, obj))
    for kind, finalizer in OURS.items():
        async for obj in _listed(kube, kind, served):
            if finalizer in (obj["metadata"].get("finalizers") or []):
                plan.finalizers.append((kind, obj, finalizer))
    integrations = await _integrations(kube, served, plan)
    for integration in integrations:
        async for job in _listed(kube, integration.kind, served, labels=integration.selector):
            _add_job(plan, integrations, integration, job)
    plan.waiting.sort(key=lambda one: str(one[1]["metadata"].get("creationTimestamp")))
    return plan


def _add_job(
    plan: UninstallPlan, integrations: Integrations, integration: Integration, job: Body
) -> None:
    if COPY_FINALIZER in (job["metadata"].get("finalizers") or []):
        plan.finalizers.append((integration.kind, job, COPY_FINALIZER))
    gate = integration.gate
    if gate is not None and gate.finalizer in (job["metadata"].get("finalizers") or []):
        plan.finalizers.append((integration.kind, job, gate.finalizer))
    pending = annotations_of(job).get(names.USER_PENDING)
    if not queue_of(job) and pending is None:
        return  # It never waited for us.
    is_child = integrations.has_waiting_controller(job, integration.kind)
    if is_child or integration.finish(job) is not None:
        return  # It has ended, or its controller starts it.
    if integration.runs_elsewhere(job) or ORIGIN in labels_of(job):
        plan.elsewhere += 1
    elif not integration.held(job):
        plan.running += 1
    elif pending == "true":
        plan.paused += 1
    else:
        plan.waiting.append((integration, job))


async def _integrations(
    kube: Kube, served: frozenset[tuple[str, str, str]], plan: UninstallPlan
) -> Integrations:
    """Those that ship, and those of the cluster."""
    found = list(INTEGRATIONS)
    async for obj in _listed(kube, kinds.INTEGRATION, served):
        try:
            integration = Integration.load(dict(obj))
        except IntegrationError as error:
            plan.unreadable.append(f"Integration {obj['metadata']['name']}: {error}")
        else:
            found = [one for one in found if one.kind.detail != integration.kind.detail]
            found.append(integration)
    return Integrations(tuple(found))


async def _listed(
    kube: Kube,
    kind: Kind,
    served: frozenset[tuple[str, str, str]],
    namespace: str | None = None,
    labels: str | None = None,
) -> AsyncIterator[Body]:
    if (kind.group, kind.version, kind.plural) in served:
        for obj in (await kube.list(kind, namespace=namespace, labels=labels)).items:
            yield obj


def _runs(deployment: Body) -> bool:
    """Whether it has replicas, or pods that have not ended yet."""
    return bool(spec_of(deployment).get("replicas", 1) or status_of(deployment).get("replicas"))


async def carry_out(
    kube: Kube,
    plan: UninstallPlan,
    waiting: Waiting | None,
    *,
    namespace: str,
    wait_seconds: float,
    note: Note = lambda _: None,
) -> list[str]:
    """Do everything, as far as it can be done; return what could not be, in words.

    `note` gets what is done at the moment.

    Until they stopped, the services held more jobs and put finalizers on more objects: what is given
    back is what is there then.
    """
    problems: list[str] = []
    for kind, obj in plan.webhooks:
        await _try(problems, kind, obj, _delete(kube, kind, obj))
    for kind, obj in plan.services:
        await _try(problems, kind, obj, _patch(kube, kind, obj, _to_zero))
    note(f"waiting for the pods of {len(plan.services)} service(s) to end")
    problems += await _until_stopped(kube, plan, wait_seconds)
    if problems:
        return [*problems, "finalizers and waiting jobs were left as they are"]
    plan = await plan_for(kube, namespace)
    note(f"giving back {len(plan.finalizers)} object(s), then the jobs that wait")
    for kind, obj, finalizer in plan.finalizers:
        await _try(problems, kind, obj, _patch(kube, kind, obj, _without(finalizer)))
    for integration, job in plan.waiting if waiting == "release" else ():
        await _try(
            problems,
            integration.kind,
            job,
            _patch(kube, integration.kind, job, _started(integration)),
        )
    return problems


async def _until_stopped(kube: Kube, plan: UninstallPlan, seconds: float) -> list[str]:
    """Wait until no pod of the services is left; return those that are."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    left = plan.services
    while True:
        found = [(kind, await _get(kube, kind, obj)) for kind, obj in left]
        left = [(kind, obj) for kind, obj in found if obj is not None and _runs(obj)]
        if not left:
            return []
        if loop.time() >= until:
            return [f"{_title(kind, obj)}: its pods have not ended" for kind, obj in left]
        await asyncio.sleep(POLL_SECONDS)


async def _try(problems: list[str], kind: Kind, obj: Body, work: Any) -> None:
    """Await `work`; note why it could not be done."""
    try:
        await work
    except (KubeError, ObjectError) as error:
        problems.append(f"{_title(kind, obj)}: {error}")


async def _delete(kube: Kube, kind: Kind, obj: Body) -> None:
    metadata = obj["metadata"]
    try:
        await kube.delete(kind, metadata.get("namespace"), metadata["name"], uid=metadata["uid"])
    except NotFoundError:
        return


async def _patch(
    kube: Kube, kind: Kind, obj: Body, patch_for: Callable[[Body], Patch | None]
) -> None:
    """Patch the object as it is now; nothing if it is gone, another one, or needs no patch."""
    current: Body | None = obj
    for attempt in range(TRIES_MAX):
        if current is None or current["metadata"]["uid"] != obj["metadata"]["uid"]:
            return
        if (patch := patch_for(current)) is None:
            return
        metadata = current["metadata"]
        try:
            await kube.patch(kind, metadata.get("namespace"), metadata["name"], patch)
        except NotFoundError:
            return
        except ConflictError:
            if attempt == TRIES_MAX - 1:
                raise
            current = await _get(kube, kind, obj)
        else:
            return


async def _get(kube: Kube, kind: Kind, obj: Body) -> Body | None:
    try:
        return await kube.get(kind, obj["metadata"].get("namespace"), obj["metadata"]["name"])
    except NotFoundError:
        return None


def _to_zero(current: Body) -> Patch | None:
    """A patch that scales a Deployment to zero."""
    if spec_of(current).get("replicas", 1) == 0:
        return None
    return {"metadata": {"uid": current["metadata"]["uid"]}, "spec": {"replicas": 0}}


def _without(finalizer: str) -> Callable[[Body], Patch | None]:
    """A patch that removes a finalizer while the list is as it was read."""

    def patch(current: Body) -> Patch | None:
        before = current["metadata"].get("finalizers") or []
        if finalizer not in before:
            return None
        return [
            {"op": "test", "path": "/metadata/uid", "value": current["metadata"]["uid"]},
            {"op": "test", "path": "/metadata/finalizers", "value": before},
            {
                "op": "replace",
                "path": "/metadata/finalizers",
                "value": [each for each in before if each != finalizer],
            },
        ]

    return patch


def _started(integration: Integration) -> Callable[[Body], Patch | None]:
    """A patch that starts a held job, without what flavors would add."""

    def patch(current: Body) -> Patch | None:
        return integration.release(dict(current), ()) if integration.held(dict(current)) else None

    return patch


def _title(kind: Kind, obj: Body) -> str:
    namespace = obj["metadata"].get("namespace")
    return f"{kind.kind} {f'{namespace}/' if namespace else ''}{obj['metadata']['name']}"


# --- the plan, in words -------------------------------------------------------------------------------


def lines_of(plan: UninstallPlan, waiting: Waiting | None) -> list[str]:
    """The plan for people, in the order in which it is carried out."""
    choice = {
        "release": "are started, without node selectors of flavors and all at once",
        "leave": "stay suspended, for Kueue or a person to start",
        None: "wait for your choice: --waiting release|leave",
    }[waiting]
    machines = sum(kind == kinds.TASK_RUN for kind, _, _ in plan.finalizers)
    by_finalizer: dict[str, int] = {}
    for _, _, finalizer in plan.finalizers:
        by_finalizer[finalizer] = by_finalizer.get(finalizer, 0) + 1
    lines = [
        *(f"delete    {_title(kind, obj)}" for kind, obj in plan.webhooks),
        *(f"stop      {_title(kind, obj)}" for kind, obj in plan.services),
        *(f"remove    {name} from {count} object(s)" for name, count in by_finalizer.items()),
        *(f"waiting   {_title(integration.kind, job)}" for integration, job in plan.waiting),
    ]
    if plan.waiting:
        lines.append(f"          these {len(plan.waiting)} job(s) {choice}")
    for count, text in (
        (plan.running, "run, and go on running: nobody counts them any more"),
        (plan.paused, "were paused by their users, and stay so"),
        (plan.elsewhere, "run in another cluster or are its copies, and stay as they are"),
        (machines, "TaskRun(s) use build machines: nobody cleans or terminates those any more"),
    ):
        if count:
            lines.append(f"keep      {count} {text}")
    lines += [f"skip      {text}" for text in plan.unreadable]
    return lines or ["nothing of Sluicegate is left in this cluster"]
