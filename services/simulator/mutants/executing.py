"""Mutants of durable work and of the patcher: order, preconditions, and what is written first."""

from typing import Any, Final

from services.simulator.mutants.deciding import constant
from services.simulator.mutants.plant import Mutant

CRASHES: Final = ("basic", "replicas", "swarm")


def _acknowledge_first(original: Any) -> Any:
    async def handle_alone(self: Any, job: Any, key: str) -> None:
        await job.message.ack()
        await original(self, job, key)

    return handle_alone


def _acknowledge_failures(original: Any) -> Any:
    async def later(self: Any, job: Any, reason: str, *, delay_seconds: float | None) -> None:
        del reason, delay_seconds
        self._end(job)

    del original
    return later


def _without_tests(of: str) -> Any:
    """Patch without the preconditions on one field."""

    def make(original: Any) -> Any:
        async def patch(
            self: Any, kind: Any, namespace: Any, name: str, patch: Any, **options: Any
        ) -> Any:
            if isinstance(patch, list):
                patch = [op for op in patch if op["op"] != "test" or of not in op["path"]]
            elif of in patch.get("metadata", {}):
                metadata = {k: v for k, v in patch["metadata"].items() if k != of}
                patch = {**patch, "metadata": metadata}
            return await original(self, kind, namespace, name, patch, **options)

        return patch

    return make


def _release_first(original: Any) -> Any:
    async def write_decision(self: Any, obj: Any, state: Any, admission: Any) -> Any:
        free = state.on_hold is None and admission.spoke is None and not admission.unplanned
        if admission.state == "admitted" and state.owner is not None and free:
            await self.jobs.release(state, admission, obj)
        return await original(self, obj, state, admission)

    return write_decision


def _outcome_first(original: Any) -> Any:
    """Report the job as it is known before the stop."""

    async def stop(self: Any, state: Any, admission: Any, workload: Any) -> None:
        job = None if state.owner is None else (await self.find(state))[0]
        if job is not None:
            await self.outcomes.report(state, admission, "applied", "suspend", after=job)
        await original(self, state, admission, workload)

    return stop


def _first_state(_original: Any) -> Any:
    def superseded(self: Any, admission: Any) -> bool:
        del self, admission
        return False

    return superseded


async def _nothing(*_args: Any, **_options: Any) -> None:
    return None


NO_MARK_TESTED: Final = Mutant(
    name="a release does not test the mark of a stop",
    adr=4,
    where="services.patcher.jobs.controller:mark_tests",
    make=constant([]),
    scenarios=("late-releases",),
)
"""Used by mutants of what the mark of a stop covers, too."""

_NOT_ASKED: Final = Mutant(
    name="nobody asks whether a status is of the last decision",
    adr=5,
    where="services.patcher.jobs.controller:JobController.check_is_last",
    make=lambda _original: _nothing,
    scenarios=("preemption", "replicas"),
)
"""Covers what one replica knows by itself."""

MUTANTS: Final = (
    Mutant(
        name="work is acknowledged before it is done",
        adr=3,
        where="shared.bus.nats.work.worker:Worker._handle_alone",
        make=_acknowledge_first,
        scenarios=CRASHES,
    ),
    Mutant(
        name="what has to be tried later is acknowledged",
        adr=3,
        where="shared.bus.nats.work.worker:Worker._later",
        make=_acknowledge_failures,
        scenarios=CRASHES,
    ),
    Mutant(
        name="patches have no precondition on the uid",
        adr=3,
        where="services.simulator.local:LocalKube.patch",
        make=_without_tests("uid"),
        scenarios=("recreation", "relists", "swarm"),
    ),
    Mutant(
        name="patches have no precondition on the state",
        adr=3,
        where="services.simulator.local:LocalKube.patch",
        make=_without_tests("resourceVersion"),
        scenarios=("preemption", "replicas", "swarm"),
    ),
    Mutant(
        name="a job is released before its status is written",
        adr=2,
        where="services.patcher.workloads.reconciler:WorkloadReconciler._write_decision",
        make=_release_first,
        scenarios=("basic", "swarm"),
    ),
    Mutant(
        name="the outcome of a stop comes before the stop",
        adr=4,
        where="services.patcher.jobs.controller:JobController.stop",
        make=_outcome_first,
        scenarios=("late-releases", "replicas"),
    ),
    Mutant(
        name="no outcome says that a job was stopped",
        adr=4,
        where="services.patcher.jobs.controller:JobController.stop",
        make=lambda _original: _nothing,
        scenarios=("preemption", "lives"),
    ),
    Mutant(
        name="a stop leaves no mark on the job",
        adr=4,
        where="services.patcher.jobs.stops:mark_patch",
        make=constant(None),
        scenarios=("late-releases",),
    ),
    NO_MARK_TESTED,
    Mutant(
        name="a refused release leaves no mark on the job",
        adr=119,
        where="services.patcher.jobs.controller:forbid_release",
        make=lambda _original: _nothing,
        scenarios=("late-refusals",),
    ),
    Mutant(
        name="an older reason replaces an admission",
        adr=5,
        where="services.patcher.workloads.reconciler:WorkloadReconciler._is_superseded",
        make=_first_state,
        scenarios=("preemption", "replicas", "swarm"),
        besides=_NOT_ASKED,
    ),
    Mutant(
        name="the patcher acts on an incomplete cache",
        adr=5,
        where="services.patcher.cluster.cache:ObjectCache.not_synced",
        make=constant(None),
        scenarios=("replicas", "swarm"),
    ),
    Mutant(
        name="our finalizer stays on the Workload of a deleted job",
        adr=31,
        where="services.patcher.workloads.reconciler:WorkloadReconciler._remove_workload",
        make=lambda _original: _nothing,
        scenarios=("basic", "recreation"),
    ),
    Mutant(
        name="the end of a job is not written",
        adr=31,
        where="services.patcher.workloads.reconciler:WorkloadReconciler._finish",
        make=lambda _original: _nothing,
        scenarios=("replicas", "swarm"),
    ),
)
"""Durable work first."""
