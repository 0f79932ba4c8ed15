"""Pods that are told to end, and take hours for it: their controller makes others beside them."""

from typing import Final

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from tests.attacks.field import OTHERS, Act, Field, restarted, work
from tests.attacks.ground import BreachError

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


ROWS: Final[dict[str, Act]] = {
    f"deletes the pods of a running {kind} with hours of grace, time and again": _deleting(kind)
    for kind in ("Job", "JobSet")
}
