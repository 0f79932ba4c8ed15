"""Checks of a system at rest: no faults any more, and time to deliver everything.

Nothing that was acknowledged may be missing then: neither on a view nor in the cluster.
"""

from collections.abc import Iterable

from services.simulator.judge.message_logs import MessageLogs
from shared.contracts.kube.conditions import FINISHED, QUOTA_RESERVED, is_true
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.refs import WorkloadRef
from shared.integrations import SHIPPED, Integrations
from shared.testing.world.memory_streams import MemoryStream


def views_complete(log: MemoryStream, view: MemoryStream) -> list[str]:
    """The last message of each subject of the log is on its view, unless the view dropped its end.

    What a killed server brought back goes with a sweep: who believes it is seen by what was decided.
    """
    last = {stored.subject: stored for stored in log.messages.values()}
    seen = {
        stored.subject: view.brought_back.get(sequence, stored.origin)
        for sequence, stored in view.messages.items()
    }
    return [
        f"{log.name} {stored.sequence}: {subject} never reached its view"
        for subject, stored in last.items()
        if seen.get(subject, stored.sequence) < stored.sequence
    ]


def decisions_carried_out(
    message_logs: MessageLogs,
    jobs: Iterable[Object],
    workloads: Iterable[Object],
    integrations: Integrations = SHIPPED,
) -> list[str]:
    """What was decided last about each job, and acknowledged, shows in the cluster."""
    decisions = _last_decisions(message_logs)
    states = {
        (one.message.namespace, one.message.owner.name): one.message
        for one in message_logs.workloads
        if one.message.owner is not None
    }
    wrong: list[str] = []
    alive: dict[str, bool] = {}
    """Uid of each job to whether it has not ended."""

    for job in jobs:
        metadata = job["metadata"]
        integration = integrations.find(group=_group(job), kind=job["kind"])
        assert integration is not None
        ended = integration.finish(job) is not None
        alive[metadata["uid"]] = not ended
        state = states.get((metadata["namespace"], metadata["name"]))
        if ended or state is None or state.uid != metadata["uid"]:
            continue
        decision = decisions.get(state.ref)
        if decision is None or decision.uid != state.uid:
            continue
        held = integration.held(job)
        name = f"{job['kind']} {metadata['namespace']}/{metadata['name']}"
        if decision.state == "admitted" and held:
            wrong.append(f"{name} was admitted and is not started")
        elif decision.state == "evicted" and held and not integration.active(job):
            wrong.append(f"{name} is suspended without pods, and its quota is not given back")
        elif decision.state in {"waiting", "reserved"} and not held:
            wrong.append(f"{name} is {decision.state} and runs")
    wrong += [
        f"{decision.ref.path} holds quota ({decision.state}), and its job has ended"
        for decision in decisions.values()
        if decision.state in HOLDING and not alive.get(decision.uid, False)
    ]
    return wrong + _statuses(decisions, workloads)


def _statuses(decisions: dict[WorkloadRef, Admission], workloads: Iterable[Object]) -> list[str]:
    """The status of each Workload says whether it holds quota."""
    wrong = []
    by_uid = {decision.uid: decision for decision in decisions.values()}
    for workload in workloads:
        metadata = workload["metadata"]
        for owner in metadata.get("ownerReferences") or []:
            decision = by_uid.get(owner["uid"])
            if decision is None or is_true(workload, FINISHED):
                continue
            holds = is_true(workload, QUOTA_RESERVED)
            if holds != (decision.state in HOLDING):
                says = "says" if holds else "does not say"
                wrong.append(
                    f"Workload {metadata['name']} {says} that it holds quota: {decision.state}"
                )
    return wrong


def _last_decisions(message_logs: MessageLogs) -> dict[WorkloadRef, Admission]:
    return {one.message.ref: one.message for one in message_logs.admissions}


def _group(job: Object) -> str:
    return str(job["apiVersion"]).rpartition("/")[0]
