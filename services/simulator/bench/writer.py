"""Writes conditions of Workload objects, as an admission controller or a job controller does."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import WORKLOAD
from shared.kube.port import ConflictError, Kube, NotFoundError, UnavailableError

RETRY_SECONDS: Final = 0.2
"""Wait after a server that did not answer."""


def is_true(obj: Body, type_: str) -> bool:
    """Whether an object's condition of that type is `True`."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return any(c.get("type") == type_ and c.get("status") == "True" for c in conditions)


class Writer:
    """Writes each status change once, with retries until it succeeds or the object is gone."""

    def __init__(self, *, kube: Kube, now: Callable[[], datetime]) -> None:
        self._kube = kube
        self._now = now
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """Verb, resource, subresource."""

    async def admit(self, workload: Body) -> None:
        """Set Admitted=True, without looking at quota."""
        condition = ("True", "Admitted", "By test runner")
        await self.conditions(
            workload, QuotaReserved=condition, Admitted=condition, admission=_admission(workload)
        )

    async def give_back(self, workload: Body) -> None:
        """Set QuotaReserved=False on an evicted workload."""
        condition = ("False", "Pending", "By test runner")
        await self.conditions(workload, QuotaReserved=condition, Admitted=condition, admission=None)

    async def finish(self, workload: Body) -> None:
        """Set Finished=True."""
        await self.conditions(workload, Finished=("True", "ByTest", "By test runner"))

    async def conditions(self, workload: Body, **changes: Any) -> None:
        """Write conditions (status, reason, message) and, if given, `admission`."""
        metadata = workload["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        while True:
            patch = self._status_patch(workload, changes)
            try:
                await self._kube.patch(WORKLOAD, namespace, name, patch, subresource="status")
            except NotFoundError:
                return
            except ConflictError:
                self.requests["PATCH", WORKLOAD.plural, "status answered 409"] += 1
                workload = await self._fresh(workload)
                continue
            except UnavailableError:
                await asyncio.sleep(RETRY_SECONDS)
                workload = await self._fresh(workload)
                continue
            self.requests["PATCH", WORKLOAD.plural, "status"] += 1
            return

    async def _fresh(self, workload: Body) -> Body:
        metadata = workload["metadata"]
        while True:
            self.requests["GET", WORKLOAD.plural, ""] += 1
            try:
                return await self._kube.get(WORKLOAD, metadata["namespace"], metadata["name"])
            except UnavailableError:
                await asyncio.sleep(RETRY_SECONDS)

    def _status_patch(self, workload: Body, changes: dict[str, Any]) -> dict[str, Any]:
        metadata = workload["metadata"]
        at = self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        left = dict(changes)
        status: dict[str, Any] = {}
        if "admission" in left:
            status["admission"] = left.pop("admission")
        conditions = (workload.get("status") or {}).get("conditions") or []
        by_type = {condition["type"]: condition for condition in conditions}
        for type_, (value, reason, message) in left.items():
            by_type[type_] = {
                "type": type_,
                "status": value,
                "reason": reason,
                "message": message,
                "lastTransitionTime": at,
            }
        status["conditions"] = list(by_type.values())
        version = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        return {"metadata": version, "status": status}


def _admission(workload: Body) -> dict[str, Any]:
    """Return an admission of all its requests in the only flavor."""
    spec = workload["spec"]
    (pod_set,) = spec["podSets"]
    resources = pod_set["template"]["spec"]["containers"][0]["resources"]
    assignment = {
        "name": pod_set["name"],
        "count": pod_set["count"],
        "flavors": {"cpu": "rf"},
        "resourceUsage": {"cpu": resources["requests"]["cpu"]},
    }
    return {"clusterQueue": spec["queueName"], "podSetAssignments": [assignment]}
