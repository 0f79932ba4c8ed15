"""Whether a workload of the hub may run on a spoke, as quota decided it and the cluster shows it (ADR 73)."""

from collections.abc import Iterator
from dataclasses import dataclass

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.writer import get_or_none
from shared.bus.follow import read
from shared.bus.port import Bus, BusError, LaterError
from shared.contracts import subjects
from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.kube.bodies import Body, spec_of, status_of
from shared.contracts.kube.kinds import ADMISSION_CHECK
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.messages.spokes import HubStatus
from shared.kube.port import Kube


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Compares what the dispatcher says of a workload with the decisions of quota."""

    bus: Bus
    kube: Kube
    cache: ObjectCache

    async def may_run_elsewhere(self, workload: Body, update: HubStatus) -> bool:
        """Return whether quota gave the workload a MultiKueue check. Raises `LaterError`, `KubeError`.

        `status.clusterName` is written only where that was true. Of the log the last decision counts: the
        cache may be behind it.
        """
        if status_of(workload).get("clusterName"):
            return True
        if await self._any_leads_to_spokes(_listed(workload)):
            return True
        decision = self.cache.admission(update.namespace, update.name)
        if decision is not None and await self._any_leads_to_spokes(decision.checks):
            return True
        decision = await self._last_decision(update)
        return decision is not None and await self._any_leads_to_spokes(decision.checks)

    async def is_elsewhere(self, update: HubStatus) -> bool:
        """Return whether quota admitted the workload on another spoke. Raises `LaterError`."""
        decision = self.cache.admission(update.namespace, update.name)
        if not _contradicts(decision, update):
            return False
        return _contradicts(await self._last_decision(update), update)

    async def is_over(self, update: HubStatus) -> bool:
        """Return whether quota took the workload's quota back for good. Raises `LaterError`.

        What the dispatcher said before of a job that is gone may come after that, and the last decision
        names no checks.
        """
        decision = await self._last_decision(update)
        return decision is not None and decision.uid == update.uid and decision.state == "released"

    async def _last_decision(self, update: HubStatus) -> Admission | None:
        subject = subjects.join("admission", update.cluster, update.namespace, update.name)
        try:
            return read(await self.bus.latest(Admission.stream, subject, current=True), Admission)
        except BusError as error:
            raise LaterError(f"cannot ask for the decision: {error}") from error

    async def _any_leads_to_spokes(self, checks: Iterator[str] | list[str]) -> bool:
        """Return whether MultiKueue answers one of these checks."""
        for check in checks:
            controller = self.cache.controller_of(check)
            if controller is None:
                found = await get_or_none(self.kube, ADMISSION_CHECK, None, check)
                controller = spec_of(found).get("controllerName")
            if controller == MULTIKUEUE:
                return True
        return False


def _listed(workload: Body) -> Iterator[str]:
    """The checks that quota's reservations had: they stay listed after an eviction."""
    for state in status_of(workload).get("admissionChecks") or []:
        yield str(state.get("name"))


def _contradicts(decision: Admission | None, update: HubStatus) -> bool:
    return (
        decision is not None
        and decision.state in HOLDING
        and decision.spoke is not None
        and update.spoke not in {None, decision.spoke}
    )
