"""What a tenant writes to pods that wait at a gate, and to their groups, to run without quota."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import labels_of
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import MANAGED_LABEL, QUEUE
from shared.kube.port import KubeError
from tests.attacks.field import OTHERS, POD_QUEUE, TENANT, Act, Field, restarted, work
from tests.attacks.tenant_writes import START, owned
from tests.simulation.kinds.pods import GROUP, PREFIX, is_gated, member

_TOTAL: Final = f"{PREFIX}pod-group-total-count"
_ROLE: Final = f"{PREFIX}role-hash"
_FINAL: Final = f"{PREFIX}retriable-in-group"


async def _group(field: Field, count: int, *, queue: str = POD_QUEUE) -> list[Object]:
    """A group whose pods wait, because the queue is in use."""
    found = [
        await field.create(member(f"g-{number}", count, queue=queue, seconds=3600))
        for number in range(count)
    ]
    await field.stage.settle(5)
    return found


async def starts_one_of_a_group(field: Field) -> None:
    """Take the gate of one pod of a group that waits, and then of all."""
    pods = await _group(field, 3)
    await field.patch(pods[0], START["Pod"])
    await field.stage.settle(5)
    for one in pods:
        await field.patch(one, START["Pod"])
    restarted(field)


async def leaves_its_group(field: Field) -> None:
    """Take the name of the group away, and the gate with it; then of others while services restart."""
    pods = await _group(field, 3)
    alone: Object = {"labels": {GROUP: None}, "annotations": {_TOTAL: None}}
    await field.patch(pods[0], {"metadata": alone, **START["Pod"]})
    await field.stage.settle(3)
    hidden: Object = {"labels": {GROUP: None, QUEUE: None, MANAGED_LABEL: None}, "finalizers": None}
    await field.patch(pods[1], {"metadata": hidden}, START["Pod"])
    restarted(field)
    await field.patch(pods[2], START["Pod"], {"metadata": hidden})


async def _running_group(field: Field) -> Object:
    """The only pod of a group that has quota: nobody else waits for that any more."""
    await _free(field)
    [made] = await _group(field, 1)
    await field.stage.until(lambda: _is_released(field, made))
    return made


async def _free(field: Field) -> None:
    """Let nobody use the queue, or wait for it."""
    with suppress(KubeError):
        await field.stage.kube.delete(kinds.POD, OTHERS, "heir-pod")
    await field.delete(field.running["Pod"])
    await field.stage.settle(5)


async def _half_done_group(field: Field) -> list[Object]:
    """Two pods of one group, of half a CPU each: the first has succeeded, and another pod waits."""
    await _free(field)
    pods = [
        await field.create(member(f"g-{n}", 2, cpu="500m", queue=POD_QUEUE, seconds=seconds))
        for n, seconds in enumerate((20, 3600))
    ]
    for one in pods:
        await field.stage.until(partial(_is_released, field, one))
    await field.stage.settle(30)
    await field.stage.create(work("Pod", "heir-2", POD_QUEUE, namespace=OTHERS))
    await field.stage.settle(5)
    return pods


async def _is_released(field: Field, obj: Object) -> bool:
    return not is_gated(await field.stage.fresh(obj))


def hands_on_what_runs(kind: str) -> Act:
    """Write a controller into the pod of a group that runs, and let another pod come in its place."""

    async def act(field: Field) -> None:
        runs = await _running_group(field)
        for number in range(3):
            owner = field.running.get(kind) or next(iter(await field.all(kinds.TASK_RUN)))
            await field.patch(runs, {"metadata": owned(owner)})
            await field.stage.settle(5)
            runs = await field.create(member(f"m-{number}", 1, queue=POD_QUEUE, seconds=3600))
            await field.patch(runs, START["Pod"])
            await field.stage.settle(5)
        restarted(field)

    return act


async def joins_what_runs(field: Field) -> None:
    """Give pods that wait the name of a group that has quota, and let more come than it says."""
    await _running_group(field)
    for number in range(4):
        made = await field.create(member(f"m-{number}", 1, queue=POD_QUEUE, seconds=3600))
        await field.patch(made, START["Pod"])
        await field.stage.settle(5)
    restarted(field)


async def lets_its_group_shrink_and_grow(field: Field) -> None:
    """Say another number of pods, and another size, of a group while it waits."""
    pods = await _group(field, 2)
    for total in ("1", "+1", "01", "\u0661", "1e0", "0", "-1"):
        for one in pods:
            await field.patch(one, {"metadata": {"annotations": {_TOTAL: total}}})
    await field.stage.settle(5)
    for one in pods:
        await field.patch(one, START["Pod"])


def says_of_a_group_that_runs(*annotations: Mapping[str, str | None]) -> Act:
    """Write annotations into the pods of a group, one of which runs and one has succeeded."""

    async def act(field: Field) -> None:
        pods = await _half_done_group(field)
        for written in annotations:
            for one in pods:
                await field.patch(one, {"metadata": {"annotations": dict(written)}})
            await field.stage.settle(5)
        restarted(field)

    return act


async def starts_a_pod_in_a_group_that_has_finished(field: Field) -> None:
    """Take the gate of a pod off as soon as it comes, while another one uses the quota of its group."""
    await _free(field)
    made = await field.create(member("g-0", 1, queue=POD_QUEUE, seconds=20))
    await field.stage.until(partial(_is_released, field, made))
    await field.stage.settle(30)
    await field.stage.create(work("Pod", "heir-2", POD_QUEUE, namespace=OTHERS))
    await field.stage.settle(5)
    for number in range(3):
        late = member(f"late-{number}", 1, queue=POD_QUEUE, seconds=3600)
        await field.patch(await field.create(late), START["Pod"])
    await field.stage.settle(40)
    late = member("last", 1, queue=POD_QUEUE, seconds=3600)
    await field.patch(await field.create(late), START["Pod"])
    restarted(field)


async def _running_pair(field: Field, **marks: str) -> list[Object]:
    """Two pods of one role, of half a CPU each, which run; no more than the first if the group is early."""
    await _free(field)
    given: Object = {"cpu": "500m", "role_hash": "a", "queue": POD_QUEUE, "seconds": 3600, **marks}
    pods = [await field.create(member(f"g-{n}", 2, **given)) for n in range(1 if marks else 2)]
    for one in pods:
        await field.stage.until(partial(_is_released, field, one))
    return pods


def replaces_by_larger(*patches: Object, **marks: str) -> Act:
    """Let a larger pod come under the role of those that run; `patches` are written into it."""

    async def act(field: Field) -> None:
        pods = await _running_pair(field, **marks)
        if not marks:
            await field.stage.kube.delete(kinds.POD, TENANT, pods[-1]["metadata"]["name"])
            await field.stage.settle(40)
        for number, cpu in enumerate(("8", "800")):
            large = member(
                f"large-{number}", 2, cpu=cpu, role_hash="a", queue=POD_QUEUE, seconds=3600, **marks
            )
            made = await field.create(large)
            await field.stage.settle(5)
            await field.patch(made, *patches)
        await field.stage.settle(40)
        restarted(field)

    return act


async def names_as_sidecar_what_starts(field: Field) -> None:
    """Let init containers of one pod run on beside it, which in the other one end one after the other."""
    await _free(field)
    resources = {"requests": {"cpu": "500m"}}
    for number, more in enumerate(({}, {"restartPolicy": "Always"})):
        made = member(f"g-{number}", 2, cpu="500m", queue=POD_QUEUE, seconds=3600)
        made["spec"]["initContainers"] = [
            {"name": f"i{n}", "image": "none", "resources": resources, **more} for n in range(10)
        ]
        await field.create(made)
    await field.stage.settle(40)
    restarted(field)


async def hides_what_runs(field: Field) -> None:
    """Take from the pods of what runs the marks by which they are seen, one after the other."""
    pods = [one for one in await field.all(kinds.POD) if labels_of(one).get(MANAGED_LABEL)]
    for one in pods:
        for metadata in (
            {"labels": {QUEUE: None}},
            {"labels": {MANAGED_LABEL: "false"}},
            {"finalizers": None},
            {"labels": None, "annotations": None},
        ):
            await field.patch(one, {"metadata": metadata})
            await field.stage.settle(3)
    restarted(field)


WAYS: Final[Mapping[str, Act]] = {
    "starts one pod of a group that waits": starts_one_of_a_group,
    "lets a pod leave its group and start": leaves_its_group,
    "gives its pods the name of a group that runs": joins_what_runs,
    "says another number of pods for a group that waits": lets_its_group_shrink_and_grow,
    "says fewer pods for a group that runs": says_of_a_group_that_runs({_TOTAL: "1"}),
    "ends a group that runs, and takes from it what it says": says_of_a_group_that_runs(
        {_FINAL: "false"},
        {_FINAL: None},
        {_TOTAL: None, _ROLE: None},
        {_TOTAL: "x", _ROLE: "other"},
    ),
    "starts a pod in a group that has finished": starts_a_pod_in_a_group_that_has_finished,
    "replaces a pod of a group by a larger one of its role": replaces_by_larger(),
    "replaces a pod of a group by a larger one, and starts it": replaces_by_larger(START["Pod"]),
    "lets larger pods come into a group that began with its first": replaces_by_larger(
        pod_group_fast_admission="true"
    ),
    "makes sidecars of the init containers of a group's second pod": names_as_sidecar_what_starts,
    "takes the marks off a pod that runs": hides_what_runs,
    **{
        f"writes a {kind} as controller into a group that runs": hands_on_what_runs(kind)
        for kind in ("Job", "JobSet", "PipelineRun", "TaskRun")
    },
}
