"""Months of history: workloads that ended before the world begins."""

from services.simulator.scenarios.swarm.load import TEAMS
from services.simulator.scenarios.system import CLUSTER, System
from shared.bus import headers
from shared.contracts.messages.admissions import Admission, Term
from shared.contracts.messages.base import Message
from shared.contracts.messages.workloads import WorkloadState


def write_history(system: System, count: int) -> None:
    """Put `count` ended workloads on the logs, as a leader and a projection of before wrote them."""
    if count == 0:
        return
    at = system.world.now()
    _write(system, Term(term=1, holder="history", began_at=at), "history:term")
    for number in range(count):
        name, uid = f"job-old-{number}", f"old-{number}"
        where = {"cluster": CLUSTER, "namespace": TEAMS[number % 2], "name": name, "uid": uid}
        state = WorkloadState.model_validate(
            {**where, "phase": "gone", "queue": "jobs-queue", "created_at": at}
        )
        ended = Admission.model_validate(
            {
                **where,
                "state": "released",
                "term": 1,
                "number": number + 1,
                "decided_at": at,
                "reason": "Gone",
                "message": "its job is gone",
            }
        )
        _write(system, state, f"history:{uid}")
        _write(system, ended, ended.message_id or uid)


def _write(system: System, message: Message, identity: str) -> None:
    made = headers.build(message, message_id=identity, source="history", now=system.world.now())
    system.server.publish(message.subject, message.encode(), made)
