"""Answers queries about waiting workloads from a decider's state. Nothing is decided here.

Only the leader answers: a standby has no state, and a stale answer about a queue is a wrong one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Final

import structlog
from pydantic import ValidationError

from services.quota.decider import Decider
from services.quota.engine.facts import CheckStateChanged, Key
from services.quota.engine.model.amounts import show
from services.quota.engine.model.state import Shard
from services.quota.engine.views import explanation as engine_answer
from services.quota.queries.misnamed import correction
from shared.bus.port import Bus, BusError
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.explain import (
    IGNORED_MAX,
    ExplainAnswer,
    ExplainRequest,
    Explanation,
    Holder,
    Position,
    PositionsAnswer,
    PositionsRequest,
    Shortage,
)
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.reasons import MISCONFIGURED, PENDING_EVALUATION, RESERVED
from shared.contracts.refs import WorkloadRef

log = structlog.get_logger(__name__)

NAMES_MAX: Final = 10
"""Workloads that an answer names in one list, at most."""

RETRY_SECONDS: Final = 1.0
NO_DURATIONS: Final = "no forecast was asked for; `sluice explain` plays one from the log"

Answer = Callable[[bytes], Awaitable[bytes]]


class QueryResponder:
    """Answers queries on the bus for one term."""

    def __init__(self, *, bus: Bus, decider: Decider) -> None:
        self._bus = bus
        self._explainer = Explainer(decider)

    async def serve(self) -> None:
        """Answer until cancelled, then withdraw so that the next leader can answer."""
        withdrawals: list[Callable[[], Awaitable[None]]] = []
        try:
            for subject, answer in (
                (ExplainRequest.subject, self._on_explain),
                (PositionsRequest.subject, self._on_positions),
            ):
                withdrawals.append(await self._respond(subject, answer))
            await asyncio.Event().wait()
        finally:
            for withdraw in withdrawals:
                await withdraw()

    async def _respond(self, subject: str, answer: Answer) -> Callable[[], Awaitable[None]]:
        """Register, and retry while the bus fails: decisions go on without queries."""
        while True:
            try:
                return await self._bus.respond(subject, answer)
            except BusError as error:
                log.warning("questions are not answered yet", subject=subject, error=str(error))
                await asyncio.sleep(RETRY_SECONDS)

    async def _on_explain(self, data: bytes) -> bytes:
        try:
            answer = self._explainer.explain(ExplainRequest.model_validate_json(data or b"{}"))
        except ValidationError as error:
            answer = ExplainAnswer(problem=_sentence(error))
        return answer.model_dump_json(exclude_none=True).encode()

    async def _on_positions(self, data: bytes) -> bytes:
        try:
            answer = self._explainer.positions(PositionsRequest.model_validate_json(data or b"{}"))
        except ValidationError as error:
            answer = PositionsAnswer(problem=_sentence(error))
        return answer.model_dump_json(exclude_none=True).encode()


class Explainer:
    """Answers from the state of a decider, the leader's or a read replica's."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    def explain(self, request: ExplainRequest) -> ExplainAnswer:
        """Why a workload waits, as of now."""
        found = [
            state
            for state in self._decider.states()
            if state.namespace == request.namespace
            and request.cluster in {None, state.cluster}
            and (state.name == request.name or _job_name(state) == request.name)
        ]
        if not found:
            problem = f"nothing is known of {request.namespace}/{request.name}"
            held_back = self._decider.held_back.find(
                request.namespace, request.name, request.cluster
            )
            stopped = self._decider.admission_stopped
            problem = ": ".join(filter(None, (problem, held_back or stopped)))
            return ExplainAnswer(problem=problem)
        # A job name may have had several workloads: unfinished ones come first.
        found.sort(key=lambda state: (state.cluster, state.phase == "finished", state.name))
        everyone = request.all_namespaces
        return ExplainAnswer(items=[self._explained(state, everyone=everyone) for state in found])

    def _explained(self, state: WorkloadState, *, everyone: bool) -> Explanation:
        key = f"{state.namespace}/{state.name}"
        found = self._decider.engine.explain(state.cluster, key)
        shard = self._shard(state.cluster)
        if state.phase == "finished":
            return _over(state)
        if found is None or shard is None:
            return _unseen(state)
        ahead = self._ahead(state, found)
        here = [name for name in ahead if name.startswith(f"{state.namespace}/")]
        mine = _names(state.namespace, found.victims)
        unready = _names(state.namespace, found.unready)
        checks = self._awaited_checks(shard, state, found)
        holding = found.reason in _HOLDING
        return Explanation(
            **_base(state),
            reason=found.reason,
            message=self._message(state, found),
            cluster_queue=found.cluster_queue,
            position=found.position,
            position_in_local_queue=found.position_in_local_queue,
            ahead=_names(state.namespace, here)[:NAMES_MAX],
            ahead_here=len(here),
            ahead_elsewhere=len(ahead) - len(here),
            shortages=[
                _shortage(shard, state, found.cluster_queue, each, everyone=everyone)
                for each in found.shortfalls
            ],
            victims=mine,
            victims_elsewhere=len(found.victims) - len(mine),
            unready=unready,
            unready_elsewhere=len(found.unready) - len(unready),
            fair_shares=dict(found.shares),
            checks={name: check.state for name, check in checks.items()},
            check_messages={name: check.message for name, check in checks.items() if check.message},
            remedy=self._remedy(shard, state, found),
            requeue_at=None if found.requeue_at is None else _at(found.requeue_at),
            expected_start_unknown_because="" if holding else NO_DURATIONS,
        )

    @staticmethod
    def _remedy(shard: Shard, state: WorkloadState, found: engine_answer.Explanation) -> str:
        misnamed = found.reason == MISCONFIGURED and not found.cluster_queue
        return (correction(shard, state) if misnamed else "") or found.remedy

    def _message(self, state: WorkloadState, found: engine_answer.Explanation) -> str:
        """The engine's message; during a back-off also the reason of the eviction."""
        if (stopped := self._decider.admission_stopped) and found.reason != "Admitted":
            return f"Nobody is admitted at present: {stopped}. {found.message}"
        if found.reason in _HOLDING and (why := self._decider.held_back.why(state.ref)):
            return f"{found.message}. It keeps its quota, but {why}"
        last = self._decider.last_decision(state)
        if found.requeue_at is None or last is None or last.state != "waiting" or not last.message:
            return found.message
        times = f" (time {last.requeue_count})" if last.requeue_count else ""
        return f"{found.message}. {last.message}{times}"

    def unready_checks(self, ref: WorkloadRef) -> dict[str, CheckStateChanged | None]:
        """The admission checks that a workload with quota needs and that are not Ready, by name.

        Their last answers to this reservation; None: no answer yet.
        """
        shard = self._shard(ref.cluster)
        workload = shard.workloads.get(ref.path) if shard is not None else None
        if workload is None:
            return {}
        needed = self._decider.engine.required_checks(ref.cluster, ref.path)
        answers = {name: workload.checks.get(name) for name in needed}
        return {n: each for n, each in answers.items() if each is None or each.state != "Ready"}

    def _awaited_checks(
        self, shard: Shard, state: WorkloadState, found: engine_answer.Explanation
    ) -> dict[str, CheckState]:
        """The admission checks for which it waits; a check without a state counts as pending."""
        latest = self._decider.checks_of(state)
        queue = shard.queues.get(found.cluster_queue)
        wanted = [rule.name for rule in queue.fact.checks] if queue is not None else []
        if found.reason == RESERVED:
            answers = shard.workloads[found.key].checks
            return {
                name: latest[name]
                if name in answers and name in latest
                else _pending_check(state, name)
                for name in dict.fromkeys((*wanted, *answers))
            }
        if found.requeue_at is None:
            return {}
        return {
            name: latest[name]
            for name in wanted
            if name in latest and latest[name].state == "Retry"
        }

    def _ahead(self, state: WorkloadState, found: engine_answer.Explanation) -> list[Key]:
        if found.position is None or found.position == 1:
            return []
        pending = self._decider.engine.pending(
            state.cluster, found.cluster_queue, limit=found.position - 1
        )
        return [each.key for each in pending]

    def positions(self, request: PositionsRequest) -> PositionsAnswer:
        """The waiting workloads of a queue, in its order."""
        local = f"{request.namespace}/{request.queue}" if request.queue else None
        found: list[Position] = []
        for shard in self._decider.engine.shards():
            if request.cluster not in {None, shard.name}:
                continue
            for queue in sorted(shard.queues):
                if request.cluster_queue not in {None, queue}:
                    continue
                pending = self._decider.engine.pending(shard.name, queue, limit=_NO_LIMIT)
                for each in pending:
                    namespace, _, name = each.key.partition("/")
                    if request.namespace in {None, namespace} and local in {None, each.local_queue}:
                        found.append(
                            Position(
                                cluster=shard.name,
                                namespace=namespace,
                                name=name,
                                queue=each.local_queue.partition("/")[2],
                                cluster_queue=queue,
                                priority=each.priority,
                                position=each.position,
                                position_in_local_queue=each.position_in_local_queue,
                            )
                        )
        return PositionsAnswer(
            items=found[request.offset : request.offset + request.limit],
            stopped=self._decider.admission_stopped,
            ignored=[] if request.namespace else self._decider.ignored.problems[:IGNORED_MAX],
        )

    def _shard(self, cluster: str) -> Shard | None:
        return next((s for s in self._decider.engine.shards() if s.name == cluster), None)


_NO_LIMIT: Final = 1 << 62
_HOLDING: Final = frozenset({RESERVED, "Admitted"})
"""Reasons of the engine for a workload that has quota."""


def _shortage(
    shard: Shard,
    state: WorkloadState,
    cluster_queue: str,
    binding: engine_answer.Shortfall,
    *,
    everyone: bool,
) -> Shortage:
    """A shortfall with its holders: by name in the asker's namespace or in all, else as a sum."""
    named: list[tuple[int, Key, str]] = []
    elsewhere: list[int] = []
    tree = shard.queues[cluster_queue].node.tree
    for node in tree.queues:
        for holder in node.queue.holders.values() if node.queue is not None else ():
            amount = holder.usage.get((binding.flavor, binding.resource), 0)
            if amount and (everyone or holder.namespace == state.namespace):
                named.append((-amount, holder.key, node.name))
            elif amount:
                elsewhere.append(amount)
    amount_of = binding.resource
    unnamed = [-negative for negative, _, _ in sorted(named)[NAMES_MAX:]] if everyone else []
    return Shortage(
        flavor=binding.flavor,
        resource=binding.resource,
        asked=show(amount_of, binding.asked),
        free=show(amount_of, binding.free),
        borrowable=show(amount_of, binding.borrowable),
        most=show(amount_of, binding.maximum),
        limit=binding.limit,
        holders=[
            Holder(
                name=key.partition("/")[2],
                namespace="" if key.partition("/")[0] == state.namespace else key.partition("/")[0],
                cluster_queue="" if queue == cluster_queue else queue,
                amount=show(amount_of, -negative),
            )
            for negative, key, queue in sorted(named)[:NAMES_MAX]
        ],
        holders_elsewhere=len(elsewhere) + len(unnamed),
        held_elsewhere=show(amount_of, sum(elsewhere) + sum(unnamed)),
    )


def _pending_check(state: WorkloadState, check: str) -> CheckState:
    return CheckState(
        cluster=state.cluster,
        namespace=state.namespace,
        name=state.name,
        uid=state.uid,
        check=check,
        state="Pending",
        at=state.created_at,
    )


def _base(state: WorkloadState) -> dict[str, object]:
    job = f"{state.owner.kind} {state.owner.name}" if state.owner is not None else ""
    return {
        "cluster": state.cluster,
        "namespace": state.namespace,
        "name": state.name,
        "job": job,
        "queue": state.queue,
        "priority": state.priority,
        "created_at": state.created_at,
    }


def _over(state: WorkloadState) -> Explanation:
    finish = state.finish
    how = "" if finish is None else ("succeeded" if finish.success else "failed")
    message = f"It {how}: {finish.message}" if finish is not None else "It is over"
    return Explanation(**_base(state), reason="Finished", message=message.rstrip(": "))


def _unseen(state: WorkloadState) -> Explanation:
    """The engine does not know it yet, because its cluster is not listed to the end."""
    return Explanation(
        **_base(state),
        reason=PENDING_EVALUATION,
        message=f"Cluster {state.cluster} has not been listed to the end yet",
        remedy=f"the watcher of {state.cluster} must finish its first list",
        expected_start_unknown_because=NO_DURATIONS,
    )


def _job_name(state: WorkloadState) -> str | None:
    return None if state.owner is None else state.owner.name


def _names(namespace: str, keys: Iterable[Key]) -> list[str]:
    """Names of the workloads of one namespace."""
    prefix = f"{namespace}/"
    return [key.removeprefix(prefix) for key in keys if key.startswith(prefix)]


def _at(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds / 1e9, tz=UTC)


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "question"
    return f"{where}: {first['msg']}"
