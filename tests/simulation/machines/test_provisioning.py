"""The check `kueue.x-k8s.io/provisioning-request`: from hold to release, with a cluster autoscaler."""

from typing import Any

from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.conditions import find_condition
from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.stage import Stage, job, pool, story

CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
GROUP = "autoscaling.x-k8s.io"
DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"provisioningrequests.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "ProvisioningRequest", "plural": "provisioningrequests"},
        "versions": [
            {
                "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}  # fmt: skip


def kueue(kind: str, name: str, spec: Object) -> Object:
    api = "kueue.x-k8s.io/v1beta2"
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}


CONFIG = kueue(
    "ProvisioningRequestConfig",
    "scale-up",
    {
        "provisioningClassName": CLASS,
        "retryStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 20},
        "podSetUpdates": {
            "nodeSelector": [{"key": "pool", "valueFromProvisioningClassDetail": "PoolName"}]
        },
    },
)
PARAMETERS = {"apiGroup": "kueue.x-k8s.io", "kind": CONFIG["kind"], "name": "scale-up"}
CHECK = kueue(
    "AdmissionCheck",
    "capacity",
    {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": PARAMETERS},
)
STRATEGY = {"admissionChecks": [{"name": "capacity"}]}
POOL = pool("pool", {"cpu": 4}, flavor="spot", admissionChecksStrategy=STRATEGY)


class Autoscaler:
    """What the cluster autoscaler says, and what its users see of it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def requests(self) -> dict[str, Object]:
        listed = await self.stage.kube.list(kinds.PROVISIONING_REQUEST)
        return {one["metadata"]["name"]: dict(one) for one in listed.items}

    async def until_asked(self, attempt: int) -> str:
        """The name of the request of that attempt, once it is the only one."""

        async def asked() -> bool:
            return [name.rsplit("-", 1)[1] for name in await self.requests()] == [str(attempt)]

        await self.stage.until(asked)
        return next(iter(await self.requests()))

    async def say(self, request: str, *conditions: tuple[str, str, str], **status: Any) -> None:
        told = [
            {"type": type_, "status": value, "reason": "Told", "message": message}
            for type_, value, message in conditions
        ]
        patch = {"status": {"conditions": told, **status}}
        await self.stage.kube.patch(
            kinds.PROVISIONING_REQUEST, "team-a", request, patch, subresource="status"
        )

    async def check(self, owner: Object) -> Object:
        (state,) = (await self.stage.workload(owner))["status"]["admissionChecks"]
        return dict(state)

    async def until_condition(self, reason: str, message: str) -> None:
        """Until the check says so of itself."""

        async def told() -> bool:
            obj = await self.stage.kube.get(kinds.ADMISSION_CHECK, None, "capacity")
            condition: Object = find_condition(obj, "Active") or {}
            return condition.get("reason") == reason and message in str(condition.get("message"))

        await self.stage.until(told)

    async def until_check(self, owner: Object, state: str, message: str) -> None:
        async def told() -> bool:
            found = await self.check(owner)
            return (found["state"], found.get("message")) == (state, message)

        await self.stage.until(told)


@story()
async def test_job_waits_for_the_autoscaler_and_runs_on_what_it_provided(stage: Stage) -> None:
    scaler, world = Autoscaler(stage), stage.system.world
    await stage.create(CHECK, *POOL)
    train = await stage.create(
        job("train", "pool", {"cpu": 2}, seconds=30,
            annotations={"provreq.kueue.x-k8s.io/ValidUntilSeconds": "600"})
    )  # fmt: skip
    await stage.until_waits(train, "inactive")
    await scaler.until_condition("BadParametersRef", "not found")
    await stage.create(CONFIG)
    await scaler.until_condition("NotServed", "install the cluster autoscaler's")
    await stage.create(DEFINITION)

    first = await scaler.until_asked(1)
    world.crash("patcher-1", down_seconds=3.0)
    request = (await scaler.requests())[first]
    assert request["spec"]["provisioningClassName"] == CLASS
    assert request["spec"]["parameters"] == {"ValidUntilSeconds": "600"}
    (asked,) = request["spec"]["podSets"]
    template = await stage.kube.get(kinds.POD_TEMPLATE, "team-a", asked["podTemplateRef"]["name"])
    (container,) = dict(template)["template"]["spec"]["containers"]  # type: ignore[index]
    assert container["resources"]["requests"] == {"cpu": "2"}
    await scaler.say(first, ("Accepted", "True", ""), ("Provisioned", "False", "ETA: 5m"))
    await scaler.until_check(train, "Pending", "ETA: 5m")
    assert not await stage.runs(train)

    await scaler.say(first, ("Failed", "True", "no quota in zone a"))
    second = await scaler.until_asked(2)
    assert (await scaler.check(train))["retryCount"] == 1
    events = await stage.events(await stage.workload(train), "AdmissionCheckUpdated")
    assert any("Retrying after failure: no quota in zone a" in text for text in events)

    world.crash("patcher-1", down_seconds=3.0)
    details = {"PoolName": "pool-7"}
    provisioned = ("Provisioned", "True", "Provisioning Request was successfully provisioned.")
    await scaler.say(second, provisioned, provisioningClassDetails=details)
    await stage.until_admitted(train)
    await stage.until(lambda: stage.runs(train))
    pod = (await stage.fresh(train))["spec"]["template"]
    assert (
        pod["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"]
        == second
    )
    assert pod["spec"]["nodeSelector"] == {"pool": "pool-7"}
    template = await stage.kube.get(kinds.POD_TEMPLATE, "team-a", f"ppt-{second}-main")
    (owner,) = template["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("ProvisioningRequest", second)

    await stage.until_finished(train)

    async def cleaned() -> bool:
        return not await scaler.requests()

    await stage.until(cleaned)


@story()
async def test_revoked_capacity_and_the_last_failure_deactivate(stage: Stage) -> None:
    scaler = Autoscaler(stage)
    config = as_body(
        {**CONFIG, "spec": {**CONFIG["spec"], "retryStrategy": {"backoffLimitCount": 0}}}
    )
    await stage.create(DEFINITION, config, CHECK, *POOL)
    train = await stage.create(job("train", "pool", {"cpu": 2}))
    first = await scaler.until_asked(1)
    await scaler.say(first, ("Provisioned", "True", "it is there"))
    await stage.until(lambda: stage.runs(train))
    await scaler.say(
        first, ("Provisioned", "True", ""), ("CapacityRevoked", "True", "the nodes went")
    )

    async def is_off(owner: Object) -> bool:
        spec = (await stage.workload(owner))["spec"]
        return spec.get("active") is False and not await stage.runs(owner)

    await stage.until(lambda: is_off(train))
    later = await stage.create(job("later", "pool", {"cpu": 2}))
    second = await scaler.until_asked(1)
    await scaler.say(second, ("Failed", "True", "there is nothing"))
    await stage.until(lambda: is_off(later))
