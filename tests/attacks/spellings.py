"""What a tenant writes otherwise than most do: empty values, generated names, amounts in other fields."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import QUEUE
from shared.kube.port import KubeError
from tests.attacks.field import OTHERS, Act, Field, restarted, work
from tests.attacks.tenant_writes import START

EMPTY: Final[Mapping[str, tuple[Object, ...]]] = {
    "Job": ({"spec": {"suspend": None}},),
    "JobSet": ({"spec": {"suspend": None}},),
    "PipelineRun": ({"spec": {"status": ""}},),
    "Pod": ({"spec": {"schedulingGates": []}},),
}
"""What says by an empty value that nothing holds it."""

CPU: Final = "3"
AMOUNTS: Final[Mapping[str, Object]] = {
    "limits": {"containers": [{"resources": {"limits": {"cpu": CPU}}}]},
    "sidecar": {
        "containers": [{}],
        "initContainers": [{"resources": {"requests": {"cpu": CPU}}, "restartPolicy": "Always"}],
    },
    "init": {"containers": [{}], "initContainers": [{"resources": {"requests": {"cpu": CPU}}}]},
    "pod": {"containers": [{}], "resources": {"requests": {"cpu": CPU}}},
    "pod-limits": {"containers": [{}], "resources": {"limits": {"cpu": CPU}}},
    "several": {"containers": [{"resources": {"requests": {"cpu": "1"}}}] * 3},
    "milli": {"containers": [{"resources": {"requests": {"cpu": "3000m"}}}]},
    "nano": {"containers": [{"resources": {"requests": {"cpu": "3000000000n"}}}]},
    "exponent": {"containers": [{"resources": {"requests": {"cpu": "3e0"}}}]},
    "fraction": {"containers": [{"resources": {"requests": {"cpu": ".003k"}}}]},
}
"""Pods that ask for three CPU, each by other words."""


async def starts_by_an_empty_value(field: Field, kind: str) -> None:
    """Start what waits by taking away, or emptying, what holds it."""
    obj = await field.waiting(kind)
    for _ in range(3):
        for patch in EMPTY[kind]:
            await field.patch(obj, patch)
            await field.patch(obj, {"metadata": {"labels": {QUEUE: ""}}, **patch})
        await field.stage.settle(3)
    restarted(field)


async def has_a_generated_name(field: Field, kind: str) -> None:
    """Create it without a name, started; then start it."""
    for number in range(2):
        obj = work(kind, "", "full")
        del obj["metadata"]["name"]
        obj["metadata"]["generateName"] = f"generated-{number}-"
        if kind in {"Job", "JobSet"}:
            obj["spec"]["suspend"] = False
        made = await field.create(obj)
        await field.stage.settle(3)
        await field.patch(made, START[kind])
    restarted(field)


async def asks_by_other_fields(field: Field) -> None:
    """Ask for three CPU by other fields than most do, where one is free."""
    with suppress(KubeError):
        await field.stage.kube.delete(kinds.JOB, OTHERS, "heir-job")
    await field.delete(field.running["Job"])
    await field.stage.settle(5)
    for name, spec in AMOUNTS.items():
        obj = work("Job", f"asks-{name}", "own")
        obj["spec"]["template"]["spec"] = {"restartPolicy": "Never", **_named(spec)}
        made = await field.create(obj)
        await field.patch(made, START["Job"])
        await field.stage.settle(40)
        if made:
            await field.delete(made)
        await field.stage.settle(5)


def _named(spec: Object) -> Object:
    """With a name and an image for each container."""
    fields = ("containers", "initContainers")
    more: dict[str, Any] = {
        field: [
            {"name": f"{field.lower()}-{number}", "image": "none", **one}
            for number, one in enumerate(spec[field])
        ]
        for field in fields
        if field in spec
    }
    return {**spec, **more}


EITHER: Final[Mapping[str, Callable[[Field, str], Awaitable[None]]]] = {
    "starts a waiting {kind} by an empty value": starts_by_an_empty_value,
    "creates a {kind} with a generated name, and starts it": has_a_generated_name,
}
SINGLE: Final[Mapping[str, Act]] = {
    "asks for more by other fields than most do": asks_by_other_fields,
}
