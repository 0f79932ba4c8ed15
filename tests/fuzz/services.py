"""Borders inside the hub: what each service makes of the messages that others write (T2, T3)."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from services.dispatcher.outbound.ended_work import settled_orders
from services.dispatcher.outbound.hub_status import hub_status
from services.dispatcher.planning.nomination import NominationRules, NominationStrategy
from services.dispatcher.planning.plan import plan
from services.dispatcher.planning.situation import SituationReader
from services.dispatcher.spokes.liveness import SpokeHealth
from services.dispatcher.store import Store as DispatcherStore
from services.provisioner.config.provider_types import RULES
from services.provisioner.store import Store as ProvisionerStore
from services.quota.audit.auditor import Auditor
from services.quota.audit.contradictions import OpenContradictions
from services.quota.decider import Decider
from services.quota.settings import QuotaSettings
from services.tracer.events import LOGS
from services.tracer.open_traces import OpenTraces
from services.tracer.timeline import spans_of
from shared.bus.follow import dispatch, isolated
from shared.bus.port import Entry
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import Message, UndecodableError
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.hosts import HostState, PlatformOffer, PlatformState
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.spokes import CopyState, Heartbeat, HubStatus
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.builders import admission, observed_object, workload
from tests.fuzz import objects
from tests.fuzz.border import Border
from tests.fuzz.kubernetes import observations
from tests.fuzz.messages import NOON, addressed, sample
from tests.fuzz.values import texts, written

_SPOKE_KINDS: Final = (
    kinds.JOB, kinds.PIPELINE_RUN, kinds.WORKLOAD, kinds.CLUSTER_QUEUE, kinds.LOCAL_QUEUE,
)  # fmt: skip
_HUB_KINDS: Final = (
    kinds.ADMISSION_CHECK, kinds.MULTIKUEUE_CONFIG, kinds.MULTIKUEUE_CLUSTER, kinds.RESOURCE_FLAVOR,
    kinds.WORKLOAD_PRIORITY_CLASS, kinds.JOB, kinds.WORKLOAD, kinds.INTEGRATION,
)  # fmt: skip

_ABOUT: Final = workload("job-train", namespace="team-a", uid="u-1")
_DECIDED: Final = admission(_ABOUT, "reserved", checks=["machines"])


class _Dispatcher:
    """The memory of a dispatcher, filled with what is sound."""

    def __init__(self) -> None:
        health = SpokeHealth(clock=_now, silent_seconds=15.0, lost_seconds=60.0)
        self.store = DispatcherStore(
            cluster="hub", origin="multikueue", nominations=True, health=health, clock=_now
        )
        for kind in _HUB_KINDS:
            self.hub_object(observed_object(kind, objects.ALL[kind][0]))
        for kind in _SPOKE_KINDS:
            self.spoke_object(observed_object(kind, objects.ALL[kind][0], cluster="west"))
        self.store.mark_listed("hub")
        self.store.mark_listed("west")
        self.store.mark_loaded("west")
        self.store.observe_workload(_ABOUT)
        self.store.observe_admission(_DECIDED)

    def hub_object(self, one: Observed) -> None:
        self.store.observe_integration(
            one
        ) if one.kind == "Integration" else self.store.observe_hub_object(one)

    def spoke_object(self, one: Observed) -> None:
        self.store.observe_spoke_object("west", one)

    def plan(self) -> None:
        """As the term does for each workload that may have changed."""
        rules = NominationRules(
            strategy=NominationStrategy.ALL_AT_ONCE,
            step_size=3,
            round_seconds=300.0,
            fallback_seconds=60.0,
        )
        reader = SituationReader(store=self.store, rules=rules, clock=_now, orphan_seconds=60.0)
        for about in list(self.store.drain_dirty()):
            with isolated(Dispatch.stream, "a workload"):
                situation = reader.situation(about, NOON, frozenset())
                if situation is not None:
                    plan(situation)
                    hub_status(self.store, about, situation, NOON)
        settled_orders(self.store, NOON)
        for subject, one in self.store.given_answers.expired(NOON, lambda _: False).items():
            self.store.forget_answer(subject, one)


def _now() -> float:
    return 100.0


def _dispatcher_object(cluster: str, entry: Entry) -> None:
    dispatcher = _Dispatcher()
    handle = dispatcher.hub_object if cluster == "hub" else dispatcher.spoke_object
    dispatch(entry, {Observed: lambda one, _: handle(one)})
    dispatcher.plan()


def _dispatcher_message(data: bytes, kind: type[Message]) -> None:
    dispatcher = _Dispatcher()
    store = dispatcher.store
    handlers: dict[type[Any], Callable[[Any, Any], None]] = {
        Admission: lambda one, _: store.observe_admission(one),
        WorkloadState: lambda one, _: store.observe_workload(one),
        CheckState: lambda one, entry: store.observe_check(one, entry.sequence),
        Dispatch: lambda one, entry: store.observe_order(one, entry.sequence),
        CopyState: lambda one, entry: store.observe_report(one, entry.sequence),
        HubStatus: lambda one, entry: store.record_hub_status(one, entry.sequence),
        Heartbeat: lambda one, entry: store.observe_heartbeat(one, entry.sequence),
    }
    dispatch(addressed(kind, data), handlers)
    dispatcher.plan()


def _provisioner() -> ProvisionerStore:
    store = ProvisionerStore(
        cluster="hub", host_config=("machines", "host-config"), rules=RULES,
        providers=frozenset({"fake", "aws", "ibmz", "ibmp"}),
    )  # fmt: skip
    for kind in (kinds.CONFIG_MAP, kinds.ADMISSION_CHECK, kinds.PIPELINE_RUN, kinds.TASK_RUN):
        store.apply_observed(observed_object(kind, objects.ALL[kind][-1]))
    store.apply_admission(_DECIDED)
    return store


def _provision(store: ProvisionerStore) -> None:
    """All inputs of a decision, as the term reads them."""
    for platform in store.pop_dirty():
        store.requests(platform), store.resolve(platform), store.ended_but_unreleased(platform)
        store.host_limits(platform, most=1, refused=False, now=NOON)
        store.with_returned(platform, store.ledger(platform))
        store.reservations.requests(platform, store.ledger(platform))
        store.used_by_other_platforms(platform)
    store.changed_offer(NOON), store.expired(NOON)
    for one in store.reservations.pop_unanswered():
        store.reservations.answer(one, store.config)


def _provisioner_object(entry: Entry) -> None:
    store = _provisioner()
    dispatch(entry, {Observed: lambda one, _: store.apply_observed(one)})
    _provision(store)


def _provisioner_message(data: bytes, kind: type[Message]) -> None:
    store = _provisioner()
    handlers: dict[type[Any], Callable[[Any, Any], None]] = {
        HostState: lambda one, entry: store.apply_host_state(one, entry.sequence),
        PlatformState: lambda one, entry: store.apply_platform_state(one, entry.sequence),
        PlatformOffer: lambda one, _: store.apply_offer(one),
        Admission: lambda one, _: store.apply_admission(one),
        CheckState: lambda one, entry: store.reservations.apply_check_state(one, entry.sequence),
    }
    dispatch(addressed(kind, data), handlers)
    _provision(store)


def _quota(data: bytes, kind: type[Message]) -> object:
    """One message among sound ones, in a term that decides."""
    decider = _decider()
    decider.apply(workload("job-train-3f2a1", namespace="team-a", uid="u-1"))
    decider.apply(Synced(cluster="hub", epoch="1", kinds=[], at=NOON))
    list(decider.decide(NOON))
    try:
        message = addressed(kind, data).read(kind)
    except UndecodableError:
        return None
    if isinstance(message, Admission):
        decider.restore(message)
    else:
        decider.apply(message)
    decided = [each.encode() for each in decider.decide(NOON)]
    return decided, [each.encode() for each in decider.queue_statuses(NOON)]


def _decider() -> Decider:
    decider = Decider(QuotaSettings(cluster="hub"))
    for each, samples in objects.ALL.items():
        decider.apply(observed_object(each, samples[0]))
    return decider


def _quota_object(entry: Entry) -> object:
    """What a watcher says of a queue, in a term whose auditor has every message, too."""
    decider, auditor = _decider(), Auditor(OpenContradictions())

    def note(one: Observed, _: Entry) -> None:
        decider.apply(one)
        auditor.note(one)

    dispatch(entry, {Observed: note})
    for decided in decider.decide(NOON):
        auditor.note(decided)
    return auditor.examine(decider.engine, decider.synced)


def _trace(data: bytes, kind: type[Message]) -> object:
    traces = OpenTraces(delivered=0)
    ended = []
    for name, type_ in (
        ("workload", WorkloadState),
        ("admission", Admission),
        ("outcome", Outcome),
    ):
        entry = addressed(
            type_, written(sample(name)), traceparent=str(objects.ASKS["traceparent"])
        )
        ended += traces.observe(type_.stream, entry)[1]
    if kind.stream in LOGS:
        ended += traces.observe(kind.stream, addressed(kind, data))[1]
    finish = addressed(WorkloadState, written(sample("workload-finished")))
    ended += traces.observe("WORKLOADS", finish)[1]
    return [list(spans_of(trace)) for trace in ended]


_TYPES: Final[Mapping[str, type[Message]]] = {
    "workload": WorkloadState, "admission": Admission, "check": CheckState, "outcome": Outcome,
    "dispatch": Dispatch, "copy": CopyState, "home": HubStatus, "beat": Heartbeat, "host": HostState,
    "platform": PlatformState, "platform-offer": PlatformOffer,
}  # fmt: skip


def borders() -> Iterator[Border]:
    """Each service with each message and each object that it reads."""
    for what in ("workload", "admission", "check", "outcome"):
        yield _of("quota", what, _quota)
    for kind in (kinds.CLUSTER_QUEUE, kinds.COHORT):
        strategy = observations(kind)
        yield Border(
            name=f"quota and its auditor: {kind.kind}",
            strategy=strategy,
            call=_quota_object,
            weight=0.5,
        )
    for what in ("workload", "admission", "check", "outcome", "dispatch"):
        yield _of("tracer", what, _trace)
    for what in ("workload", "admission", "check", "dispatch", "copy", "home", "beat"):
        yield _of("dispatcher", what, _dispatcher_message)
    for what in ("host", "platform", "platform-offer", "admission", "check"):
        yield _of("provisioner", what, _provisioner_message)
    for cluster, read in (("hub", _HUB_KINDS), ("west", _SPOKE_KINDS)):
        for kind in read:
            yield Border(
                name=f"dispatcher: {kind.kind} of {cluster}", weight=0.5,
                strategy=observations(kind, cluster=cluster),
                call=partial(_dispatcher_object, cluster),
            )  # fmt: skip
    for kind in (kinds.TASK_RUN, kinds.CONFIG_MAP, kinds.ADMISSION_CHECK):
        yield Border(
            name=f"provisioner: {kind.kind}", strategy=observations(kind), call=_provisioner_object,
        )  # fmt: skip


def _of(service: str, what: str, call: Callable[[bytes, type[Message]], object]) -> Border:
    kind = _TYPES[what]
    return Border(
        name=f"{service}: message {what}",
        strategy=texts(sample(what)),
        call=lambda data: call(data, kind),
        weight=0.5,
    )
