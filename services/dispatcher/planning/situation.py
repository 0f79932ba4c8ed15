"""Weighs what is known: the situation of one workload, and what is wrong with a spoke."""

from collections.abc import Callable, Iterator
from datetime import datetime

from services.dispatcher.hub.configuration import SPOKE
from services.dispatcher.planning.nomination import Candidate, Dispatcher, Rules
from services.dispatcher.planning.order_lifecycle import OrderState
from services.dispatcher.planning.plan import Order, Situation, Standing
from services.dispatcher.planning.priority import new_rank
from services.dispatcher.spokes.capacity import asked_by
from services.dispatcher.spokes.liveness import Life
from services.dispatcher.store import Key, Knowledge
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.effects import Dispatch

__all__ = ["Weighing"]


class Weighing:
    """Reads the memory; changes nothing."""

    def __init__(
        self,
        knowledge: Knowledge,
        *,
        rules: Rules,
        clock: Callable[[], float],
        orphan_seconds: float,
        collects: bool = True,
    ) -> None:
        self._knowledge = knowledge
        self._rules = rules
        self._clock = clock
        self._orphan_seconds = orphan_seconds
        self._collects = collects

    def withdrawing(self) -> Iterator[tuple[Key, str]]:
        """Orders that were withdrawn, and whose end is not confirmed."""
        for key, orders in self._knowledge.orders.items():
            for spoke, record in orders.items():
                if record.message.state == "withdrawn" and not self._knowledge.is_gone(key, spoke):
                    yield key, spoke

    def has_strays(self) -> bool:
        """Whether some copy should not be there."""
        return any(self._strays(key) for key in self._knowledge.copies)

    def situation(self, key: Key, now: datetime, stopped: frozenset[str]) -> Situation | None:
        """All that is weighed about a workload; None while a spoke is still being read.

        `stopped`: spokes whose leases have run out, proved after the orders in question were
        withdrawn.
        """
        admission = self._knowledge.admissions.get(key)
        check = self._knowledge.check_of(admission) if admission is not None else None
        orders = {
            spoke: self._order(key, record.message, admission, now)
            for spoke, record in self._knowledge.orders.get(key, {}).items()
        }
        strays = self._strays(key)
        declared = {
            spoke for spoke in orders if self._knowledge.configuration.lost(spoke) is not None
        }
        common = {
            "orders": orders,
            "strays": strays,
            "stopped": stopped | declared,
            "collects": self._collects,
        }
        if admission is None or check is None:
            return Situation(wanted=False, undecided=False, **common)  # type: ignore[arg-type]
        if any(order.uid != admission.uid for order in self._knowledge.live_orders(key)):
            # Of an earlier workload of that name: it goes first.
            return Situation(wanted=False, undecided=False, **common)  # type: ignore[arg-type]
        candidates, problem, named = self._candidates(key, admission, check)
        if any(spoke not in self._knowledge.read_spokes for spoke in (*named, *orders)):
            return None
        ended = self._knowledge.ended(key, admission.uid)
        return Situation(
            wanted=True,
            undecided=admission.state == "reserved",
            awaits=self._knowledge.awaited(admission) if admission.state == "reserved" else (),
            rules=self._rules,
            candidates=candidates,
            external=self._knowledge.hub.nominated.get(key, ()),
            problem=problem,
            copies=self._knowledge.seen(key),
            evictions={
                spoke: remote.evicted
                for spoke in orders
                if (remote := self._knowledge.remotes.get((spoke, key)))
                and remote.evicted is not None
            },
            choice=self._choice(key, admission),
            silent=frozenset(s for s in orders if self._knowledge.presence.life(s) is Life.LOST),
            wish=self._knowledge.wish(key) is not None,
            ended=None if ended is None else ended.spoke,
            **common,  # type: ignore[arg-type]
        )

    def _order(
        self, key: Key, dispatch: Dispatch, admission: Admission | None, now: datetime
    ) -> Order:
        report = self._knowledge.report_of(key, dispatch)
        refused = ""
        if report is not None and report.state != "gone":
            current = admission is not None and dispatch.attempt == admission.number
            refused = (report.message or report.state) if current else ""
        return Order(
            state=OrderState(dispatch.state),
            started=dispatch.started,
            gone=self._knowledge.is_gone(key, dispatch.spoke),
            refused=refused,
            age_seconds=max(0.0, (now - dispatch.at).total_seconds()),
            asked=dispatch.wish is not None and dispatch.wish == self._knowledge.wish(key),
            outranked=new_rank(self._knowledge, key, dispatch) is not None,
        )

    def _strays(self, key: Key) -> dict[str, Standing]:
        """Copies without an order, or seen long after they were said to be gone."""
        strays: dict[str, Standing] = {}
        for spoke, copy in self._knowledge.copies.get(key, {}).items():
            if self._knowledge.others_like(spoke):
                continue  # It may be the copy of an order under that other name.
            record = self._knowledge.orders.get(key, {}).get(spoke)
            if record is None:
                strays[spoke] = self._knowledge.standing(spoke, key, copy)
                continue
            report = self._knowledge.reports.get(key, {}).get(spoke)
            if (
                record.message.state == "withdrawn"
                and report is not None
                and report.message.number == record.message.number
                and report.message.state == "gone"
                and self._clock() - max(report.at, record.at) >= self._orphan_seconds
            ):
                strays[spoke] = copy.standing
        return strays

    def _candidates(
        self, key: Key, admission: Admission, check: str
    ) -> tuple[tuple[Candidate, ...], str, tuple[str, ...]]:
        """Who may have it now, why the others may not, and all who are named."""
        spokes = self._knowledge.configuration.spokes(check)
        if spokes.problem:
            return (), spokes.problem, ()
        demanded = self._demanded(key, admission)
        asked, queue = asked_by(admission), (key[0], admission.queue)
        best_fit = self._rules.dispatcher is Dispatcher.BEST_FIT
        candidates: list[Candidate] = []
        out: dict[str, list[str]] = {}
        if spokes.missing:
            out["Missing clusters"] = list(spokes.missing)
        for spoke in spokes.named:
            why = self.problem_of(spoke)
            if why is None and demanded - {spoke}:
                why = f"Not {' and '.join(sorted(demanded))}"
            fit = self._knowledge.room.fit(spoke, queue, asked, but=key)
            if why is None and best_fit and not fit.queue and spoke in self._knowledge.read_spokes:
                why = f"Without LocalQueue {'/'.join(queue)}"
            if why is not None:
                out.setdefault(why, []).append(spoke)
                continue
            candidates.append(
                Candidate(
                    spoke=spoke,
                    room=fit.room,
                    load=fit.load,
                    failures=self._knowledge.presence.failures(spoke),
                    latency_seconds=self._knowledge.presence.latency_seconds(spoke) or 0.0,
                )
            )
        reasons = ". ".join(f"{what}: {', '.join(names)}" for what, names in out.items())
        named = tuple(
            spoke for spoke in spokes.named if self._knowledge.configuration.is_listed(spoke)
        )
        return tuple(candidates), f"No usable worker cluster. {reasons}", named

    def problem_of(self, spoke: str) -> str | None:
        """Why nothing new goes to a spoke; None: it may be used."""
        if self._knowledge.configuration.lost(spoke) is not None:
            return "Clusters declared lost"
        if (
            not self._knowledge.configuration.is_listed(spoke)
            or self._knowledge.presence.life(spoke) is not Life.LIVE
            or not self._knowledge.presence.reaches(spoke)
        ):
            return "Inactive clusters"
        if not self._knowledge.presence.understands(spoke):
            return "Clusters of another version"
        if self._knowledge.original(spoke) is not None:
            return "Clusters named twice"
        return None

    def _demanded(self, key: Key, admission: Admission) -> set[str]:
        """The spokes that the job or its flavors insist on: more than one cannot be had."""
        flavors = (f for p in admission.pod_sets for f in p.flavors.values())
        demanded = {spoke for f in flavors if (spoke := self._knowledge.configuration.demanded(f))}
        label = self._knowledge.hub.label(key, SPOKE)
        return demanded | {label} if label else demanded

    def _choice(self, key: Key, admission: Admission) -> str | None:
        record = self._knowledge.checks.get(key)
        if record is None or record.message.uid != admission.uid:
            return None
        current = admission.state == "admitted" or self._knowledge.is_answered(
            admission, record.message
        )
        return record.message.spoke if current else None
