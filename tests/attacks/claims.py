"""Messages that speak of what their sender has nothing to do with, or of what is not there (T3).

Each is well-formed, and would be right about another object. The table of orders has those that show by
themselves what is wrong with them.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

from prometheus_client import REGISTRY

from services.ctl.setup.webhook import webhook_manifest
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import CLASSIFIER_WEBHOOK, ORIGIN, PREBUILT_WORKLOAD
from shared.contracts.messages.base import Message
from shared.contracts.messages.hosts import HostState
from shared.contracts.messages.spokes import ORDER, HubStatus
from shared.contracts.messages.workloads import JobRef
from shared.kube.port import AlreadyExistsError
from shared.testing.builders import observed_object
from shared.testing.waiting import eventually
from tests.attacks.attack import Attack, Forge
from tests.attacks.forgery import HUB, TENANT, Forgery
from tests.attacks.ground import BreachError
from tests.attacks.orders import MARK, job, order, target
from tests.clock import now

Claim = Callable[[Forgery], Awaitable[Message]]
"""Makes what is there before, and returns the message about it."""

QUEUE: Final = "kueue.x-k8s.io/queue-name"
DONE: Final[Object] = {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}
SUCCEEDED: Final[Object] = {
    "conditions": [{"type": "Succeeded", "status": "True", "reason": "Completed"}],
    "results": [{"name": "IMAGE_DIGEST", "value": "sha256:evil"}],
}


def attacks() -> Iterator[Attack]:
    """One row for each claim."""
    for way, claim in CLAIMS.items():
        yield Attack(threat="T3", way=way, forge=_claiming(claim))
    for way, kind in INTEGRATED.items():
        yield Attack(
            threat="T3", way=f"watcher shows an Integration for {way}", forge=_showing(kind)
        )


def _claiming(claim: Claim) -> Forge:
    async def forge(stage: Forgery) -> None:
        message = await claim(stage)
        before, handled = await stage.contents(), _handled(message)
        await stage.bus.publish(message)
        await eventually(lambda: _handled(message) > handled)
        await stage.judge(before)

    return forge


def _handled(message: Message) -> float:
    """How many messages of this kind the patcher that it is for has handled, or put off."""
    _, what, cluster, *_ = message.subject.split(".")
    durable = f"patcher-{cluster}-{what}"
    counts = (
        REGISTRY.get_sample_value("sluicegate_work_total", {"durable": durable, "result": result})
        for result in ("done", "later", "never")
    )
    return sum(count or 0.0 for count in counts)


def _over_a_stock_hubs_copy(state: str) -> Claim:
    async def claim(stage: Forgery) -> Message:
        """A stock Kueue hub's copy runs, and has no mark of an order."""
        name = f"stock-{state}"
        labels = {ORIGIN: "multikueue", PREBUILT_WORKLOAD: f"job-{name}", QUEUE: "main"}
        spec = job()["spec"] | {"suspend": False}
        metadata = {"labels": labels}
        await stage.spoke.make(kinds.JOB, name, namespace=TENANT, metadata=metadata, spec=spec)
        forged = job(metadata__name=name, metadata__labels=labels)
        return order(name=f"job-{name}", state=state, job=forged)

    return claim


async def _priority_of_another_copy(stage: Forgery) -> Message:
    labels = {ORIGIN: "multikueue", PREBUILT_WORKLOAD: "job-other", QUEUE: "main"}
    metadata = {"labels": labels, "annotations": {ORDER: MARK}}
    spec = job()["spec"]
    await stage.spoke.make(kinds.JOB, "ranked", namespace=TENANT, metadata=metadata, spec=spec)
    return order(
        name="job-ranked", state="chosen", job=None, target=target(name="ranked"),
        reranked=True, priority_class="high",
    )  # fmt: skip


def _of_a_waiting_job(
    name: str, kind: Kind = kinds.JOB, *, shown: Object | None = None, check: str = "", **said: Any
) -> Claim:
    """A job that waits at the hub. `shown`: its status; `check`: one that its Workload lists."""

    async def claim(stage: Forgery) -> Message:
        spec = {"status": "PipelineRunPending", "pipelineSpec": {"tasks": []}}
        if kind == kinds.JOB:
            spec = job()["spec"]
        metadata = {"labels": {QUEUE: "main"}}
        made = await stage.hub.make(kind, name, namespace=TENANT, metadata=metadata, spec=spec)
        await _show(stage, kind, name, shown or {})
        owner = JobRef(
            api_version=kind.api_version, kind=kind.kind, plural=kind.plural, name=name,
            uid=made["metadata"]["uid"],
        )  # fmt: skip
        reference = {
            "apiVersion": owner.api_version, "kind": owner.kind, "name": name, "uid": owner.uid,
        }  # fmt: skip
        workload, spec = f"of-{name}", {"queueName": "main", "podSets": []}
        owned = {"ownerReferences": [{**reference, "controller": True}]}
        await stage.hub.make(kinds.WORKLOAD, workload, namespace=TENANT, metadata=owned, spec=spec)
        if check:
            controller = {"controllerName": "example.com/scanner"}
            await stage.hub.make(kinds.ADMISSION_CHECK, check, spec=controller)
            listed: list[Object] = [{"name": check, "state": "Ready", "message": ""}]
            await _show(stage, kinds.WORKLOAD, workload, {"admissionChecks": listed})
        return HubStatus(
            cluster=HUB, namespace=TENANT, name=workload, uid=owner.uid, target=owner, at=now(),
            **said,
        )  # fmt: skip

    return claim


async def _show(stage: Forgery, kind: Kind, name: str, status: Object) -> None:
    if status:
        patch = {"status": status}
        await stage.hub.kube.patch(kind, TENANT, name, patch, subresource="status")


async def _secret_of_nobodys_build(stage: Forgery) -> Message:
    data = {"id_rsa": "x"}
    await stage.hub.make(kinds.SECRET, "multi-platform-ssh-prod", namespace=TENANT, stringData=data)
    return HostState(
        cluster=HUB, namespace=TENANT, name="prod", uid="made-up", platform="linux/arm64",
        state="released", at=now(),
    )  # fmt: skip


def _showing(kind: Kind) -> Forge:
    """An Integration that nobody made; the one after it is real, and shows when both were handled."""

    async def forge(stage: Forgery) -> None:
        configuration = webhook_manifest(url="https://x", authority=b"ca").object
        with suppress(AlreadyExistsError):
            await stage.hub.kube.create(kinds.MUTATING_WEBHOOK, configuration)
        forged = _document(kind) | {
            "metadata": {"name": kind.plural, "uid": "u", "resourceVersion": "1"}
        }
        await stage.bus.publish(observed_object(kinds.INTEGRATION, forged))
        plural = f"after{kind.plural}"
        after = Kind(group="example.com", version="v1", kind="After", plural=plural)
        made = await stage.hub.make(kinds.INTEGRATION, plural, spec=_document(after)["spec"])
        await stage.bus.publish(observed_object(kinds.INTEGRATION, made))
        await eventually(partial(_reviews, stage, plural))
        if kind != kinds.JOB and await _reviews(stage, kind.plural):
            raise BreachError(f"the webhook reviews {kind.plural}")
        in_force = stage.hub.cache.integrations.find(group=kind.group, plural=kind.plural)
        if in_force is not None and in_force.name == kind.plural:
            raise BreachError("a document that nobody made is in force")

    return forge


def _document(kind: Kind) -> Object:
    of = {"group": kind.group, "version": kind.version, "kind": kind.kind, "plural": kind.plural}
    spec = {"kind": of, "podSets": [{"template": "spec.template", "count": "1"}]}
    return {"apiVersion": kinds.INTEGRATION.api_version, "kind": "Integration", "spec": spec}


async def _reviews(stage: Forgery, plural: str) -> bool:
    found = await stage.hub.kube.get(kinds.MUTATING_WEBHOOK, None, CLASSIFIER_WEBHOOK)
    rules = [rule for webhook in found["webhooks"] for rule in webhook["rules"]]
    return any(plural in rule["resources"] for rule in rules)


INTEGRATED: Final = {
    "role bindings": Kind(
        group="rbac.authorization.k8s.io", version="v1", kind="RoleBinding", plural="rolebindings"),
    "a kind of somebody's": Kind(
        group="example.com", version="v1", kind="Gadget", plural="gadgets"),
    "Jobs, which ships": kinds.JOB,
}  # fmt: skip
FAILED: Final[Object] = {"failed": 3}
CLAIMS: Final[dict[str, Claim]] = {
    "dispatcher withdraws a stock hub's copy": _over_a_stock_hubs_copy("withdrawn"),
    "dispatcher offers a job that a stock hub's copy is": _over_a_stock_hubs_copy("offered"),
    "dispatcher gives the copy of another workload a priority": _priority_of_another_copy,
    "dispatcher says that a waiting job is complete": _of_a_waiting_job(
        "waits-done", status=DONE, spoke="west"),
    "dispatcher says that a waiting job ended after it was taken back": _of_a_waiting_job(
        "waits-late", status=DONE),
    "dispatcher says that a waiting run has results": _of_a_waiting_job(
        "waits-run", kinds.PIPELINE_RUN, status=SUCCEEDED, spoke="west"),
    "dispatcher says that a job with somebody else's check is complete": _of_a_waiting_job(
        "waits-scan", check="scan", status=DONE, spoke="west"),
    "dispatcher says that a waiting job never ran": _of_a_waiting_job(
        "waits-ran", shown=FAILED, status={}),
    "dispatcher says that a waiting job is on a spoke": _of_a_waiting_job(
        "waits-place", spoke="west"),
    "dispatcher nominates spokes for a waiting job": _of_a_waiting_job(
        "waits-names", nominated=["west"]),
    "provisioner releases a secret that is nobody's build": _secret_of_nobodys_build,
}  # fmt: skip
