"""Pods that are told to end, and take hours for it: their controller makes others beside them."""

from typing import Final

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import QUEUE
from shared.contracts.simulation import DURATION
from tests.attacks.field import OTHERS, TENANT, Act, Field, restarted, work
from tests.attacks.ground import BreachError
from tests.conformance.seeds.stage import job, pool
from tests.simulation.test_ml_kinds import serve

_SHELF: Final = "shelf"
GRACE_SECONDS: Final = 36_000
ROUNDS: Final = 12
PODS_MAX: Final = 5
"""One that was admitted, those beside it when it is stopped, and those that are made until then."""


def _deleting(kind: str) -> Act:
    """Delete the pods of what runs, with ten hours of grace, as often as others take their place."""

    async def act(field: Field) -> None:
        for _ in range(ROUNDS):
            for pod in await _pods(field, kind):
                if "deletionTimestamp" not in pod["metadata"]:
                    await field.delete(pod, grace_seconds=GRACE_SECONDS)
            await field.stage.settle(5)
        restarted(field)
        await field.stage.settle(10)
        if (count := len(await _pods(field, kind))) > PODS_MAX:
            raise BreachError(f"{count} pods run on the quota of one")
        heir = work(kind, f"heir-{kind.lower()}", "", namespace=OTHERS)
        if await field.stage.is_admitted(await field.stage.fresh(heir)):
            raise BreachError("another has the quota of pods that run on")

    return act


async def _pods(field: Field, kind: str) -> list[Object]:
    """The pods of what the tenant runs of a kind."""
    owner = {"Job": "runs", "JobSet": "runs-workers-0"}[kind]
    pods = await field.all(kinds.POD)
    return [one for one in pods if one["metadata"]["ownerReferences"][0]["name"] == owner]


async def _without_driver(field: Field) -> None:
    """Delete the driver of a SparkApplication at once; its executors take hours to end."""
    stage = field.stage
    await stage.create(*pool(_SHELF, {"cpu": 3, "memory": "64Gi"}, namespaces=(TENANT, OTHERS)))
    await serve(stage, "SparkApplication", group="sparkoperator.k8s.io", version="v1beta2")
    roles = {"driver": {"coreRequest": "1"}, "executor": {"instances": 1, "coreRequest": "2"}}
    app = await field.create(
        {
            "apiVersion": "sparkoperator.k8s.io/v1beta2",
            "kind": "SparkApplication",
            "metadata": {"name": "app", "namespace": TENANT, "labels": {QUEUE: _SHELF}},
            "spec": {"mode": "cluster", **roles},
        }
    )
    await stage.settle(10)
    driver = await field.create(_pod("app-driver", app))
    executor = await field.create(_pod("app-exec-1", {"apiVersion": "v1", "kind": "Pod", **driver}))
    running = {"state": "RUNNING"}
    told = {"applicationState": running, "executorState": {"app-exec-1": "RUNNING"}}
    await stage.patch(app, {"status": told}, subresource="status")
    heir = job("heir", _SHELF, {"cpu": 3}, seconds=3600)
    heir["metadata"]["namespace"] = OTHERS
    heir = await stage.create(heir)
    await stage.settle(10)
    await field.delete(executor, grace_seconds=GRACE_SECONDS)  # As the garbage collector does.
    await field.delete(driver, grace_seconds=0)
    restarted(field)
    failed = {"applicationState": {"state": "FAILED"}, "executorState": {"app-exec-1": "FAILED"}}
    await stage.patch(app, {"status": failed}, subresource="status")
    await stage.settle(120)
    left = [one for one in await field.all(kinds.POD) if one["metadata"]["name"] == "app-exec-1"]
    if left and await stage.is_admitted(heir):
        raise BreachError("another has the quota of executors that run on")


def _pod(name: str, by: Object) -> Object:
    """A pod that runs for hours, as the operator or the driver makes it."""
    metadata = by["metadata"]
    owner = {key: by[key] for key in ("apiVersion", "kind")} | {"controller": True}
    owner |= {"name": metadata["name"], "uid": metadata["uid"]}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": TENANT,
            "ownerReferences": [owner],
            "annotations": {DURATION: f"{GRACE_SECONDS}s"},
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [container],
        },
    }


ROWS: Final[dict[str, Act]] = {
    **{
        f"deletes the pods of a running {kind} with hours of grace, time and again": _deleting(kind)
        for kind in ("Job", "JobSet")
    },
    "deletes the driver of a SparkApplication whose executors take hours to end": _without_driver,
}
