"""Writes to Jobs that name a Workload of their user's, and to the pod templates of Jobs."""

from copy import deepcopy
from typing import Final

from services.simulator.scenarios.tenants.load import LOCAL_QUEUES, job, pod_spec
from services.simulator.scenarios.tenants.metadata import some_annotations, some_labels
from services.simulator.scenarios.tenants.rights import Tenant, Write
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import PREBUILT_WORKLOAD

_JOBS: Final = tuple(f"named-{number}" for number in range(3))
_PLANS: Final = tuple(f"plan-{number}" for number in range(2))
"""Few, so that several Jobs name one."""

_CPU: Final = ("1m", "1", "1", "2")


async def _create(tenant: Tenant) -> None:
    """Create a Job that names a Workload, and a Workload that it fits or not, in any order."""
    random = tenant.random
    queue = random.choice(LOCAL_QUEUES[:2])
    obj = job(
        random.choice(_JOBS),
        tenant.namespace,
        cpu=random.choice(_CPU),
        pods=random.choice((1, 1, 2)),
        seconds=random.choice((2, 20, 60, 300)),
    )
    plan = _workload_of(obj, random.choice(_PLANS), queue)
    if random.random() < 1 / 4:
        plan["spec"]["podSets"][0]["count"] = random.choice((0, 1, 3))
    if random.random() < 1 / 4:
        plan["spec"]["podSets"][0]["template"]["spec"] = pod_spec(cpu="1m")
    where = random.choice(("labels", "labels", "annotations"))
    obj["metadata"][where] = {PREBUILT_WORKLOAD: await _some_name(tenant, plan)}
    obj["metadata"].setdefault("labels", {})[names.QUEUE] = queue
    writes = [(kinds.JOB, obj), (kinds.WORKLOAD, plan)]
    for kind, one in random.sample(writes, random.choice((1, 2, 2))):
        await tenant.create(kind, one)


async def _some_name(tenant: Tenant, plan: Object) -> str:
    workload = await tenant.some(kinds.WORKLOAD)
    if workload is None or tenant.random.random() < 2 / 3:
        workload = plan
    name: str = workload["metadata"]["name"]
    return name


def _workload_of(obj: Object, name: str, queue: str) -> Object:
    """Return a Workload that fits the Job."""
    spec = deepcopy(obj["spec"])
    pod_set = {"name": "main", "count": spec["parallelism"], "template": spec["template"]}
    return {
        "apiVersion": kinds.WORKLOAD.api_version,
        "kind": kinds.WORKLOAD.kind,
        "metadata": {"name": name, "namespace": obj["metadata"]["namespace"]},
        "spec": {"queueName": queue, "podSets": [pod_set]},
    }


async def _name(tenant: Tenant) -> None:
    """Let a Job that is there name another Workload, or none."""
    obj, workload = await tenant.some(kinds.JOB), await tenant.some(kinds.WORKLOAD)
    if obj is None or workload is None:
        return
    name = tenant.random.choice((workload["metadata"]["name"], workload["metadata"]["name"], None))
    where = tenant.random.choice(("labels", "annotations"))
    patch = {"metadata": {where: {PREBUILT_WORKLOAD: name}}}
    await tenant.patch(kinds.JOB, obj["metadata"]["name"], patch)


async def _change_template(tenant: Tenant) -> None:
    """Change what may change in the pod template of a suspended Job, and what may not."""
    random = tenant.random
    obj = await tenant.some(kinds.JOB)
    if obj is None:
        return
    template: Object = random.choice(
        (
            {"metadata": {"labels": some_labels(random)}},
            {"metadata": {"annotations": some_annotations(random)}},
            {"spec": {"nodeSelector": {"disk": random.choice(("ssd", "none"))}}},
            {"spec": {"tolerations": [{"operator": "Exists"}]}},
            {"spec": {"containers": pod_spec(cpu=random.choice(_CPU))["containers"]}},
            {"spec": {"priorityClassName": "high"}},
        )
    )
    await tenant.patch(kinds.JOB, obj["metadata"]["name"], {"spec": {"template": template}})


PREBUILT_WRITES: Final[dict[Write, int]] = {
    _create: 6,
    _name: 2,
    _change_template: 3,
}
"""Writes and how often each is drawn."""
