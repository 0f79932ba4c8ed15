"""A world with a bus, one cluster and the services as processes, for all scenarios."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final, Protocol, TypeVar

from services.classifier import app as classifier
from services.classifier.cel import CelEngine
from services.classifier.conversion.convert import convert
from services.classifier.projection.policy import Policy
from services.classifier.rules import Rules, parse_rules
from services.classifier.run_requests import check_fixed, check_requests
from services.classifier.validation import validate
from services.classifier.webhook.context import NamespaceContext
from services.classifier.webhook.mutation import RefusedError, mutate
from services.classifier.webhook.namespace_defaults import NamespaceDefaults
from services.classifier.webhook.updates import review_update
from services.dispatcher import app as dispatcher
from services.dispatcher.settings import DispatcherSettings
from services.patcher import app as patcher
from services.patcher.settings import PatcherSettings
from services.provisioner import app as provisioner
from services.provisioner.settings import ProvisionerSettings
from services.quota import app as quota
from services.quota.settings import QuotaSettings
from services.simulator.behaviour.manager import ControllerManager
from services.simulator.cluster.admission import AdmissionRequest
from services.simulator.cluster.api import Api
from services.simulator.cluster.errors import Cause, forbidden, invalid
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.http.reviews import ADMINISTRATOR, requester
from services.simulator.judge.message_logs import LOGS, MessageLogs, read_logs
from services.simulator.local import LocalKube
from services.watcher import app as watcher
from services.watcher.observe import observed
from services.watcher.scopes import KNOWN, LOOKED_FOR, resource_name
from services.watcher.settings import WatcherSettings
from shared.bus.follow import read
from shared.bus.headers import TYPE
from shared.bus.port import Bus
from shared.contracts.kube.bodies import annotations_of, as_body
from shared.contracts.kube.kinds import INTEGRATION, KUEUE_GROUP, Kind
from shared.contracts.kube.names import USER_PENDING
from shared.contracts.kueue.definitions import STORAGE
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.observed import Observed
from shared.contracts.webhook import PATCHER_USER
from shared.integrations import SHIPPED, Integration, Integrations, controller_uid
from shared.settings.base import ServiceSettings
from shared.settings.configuration import Configuration
from shared.telemetry.traceparent import new_traceparent
from shared.testing.world.kube import WorldKube
from shared.testing.world.memory_bus import MemoryBus, MemoryServer
from shared.testing.world.memory_streams import PLAIN, Dialect
from shared.testing.world.world import Process, ProcessContext, World

S = TypeVar("S", bound=ServiceSettings)

CLUSTER: Final = "hub"

RULES: Final = "queueName: pipelines-queue\n"
DEFAULTS: Final = Configuration()

WATCHED: Final[Mapping[str, Any]] = {
    "kinds": tuple(
        resource_name(kind)
        for kind in KNOWN.values()
        if kind not in LOOKED_FOR and kind.plural != "nodes"
    )
}
"""Setting of a watcher: only what the simulator serves, so that no world looks for more."""


class Runnable(Protocol):
    """What `assemble` of a service returns."""

    async def run(self) -> None:
        """Run until cancelled."""


Build = Callable[["System", ProcessContext, Bus], Runnable]


class System:
    """A bus, a cluster and the services in one world."""

    def __init__(
        self,
        world: World,
        *,
        rules: str = RULES,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        configuration: Configuration = DEFAULTS,
        refuses_starts: bool = False,
        fixes_requests: bool = False,
        replicated: bool = False,
    ) -> None:
        """`settings` are the operator's settings by service, where they differ from the defaults.

        `refuses_starts`: the webhook refuses what starts without admission. Without it a start passes,
        as while the webhook has not read the decisions; the services then deal with it.

        `fixes_requests`: the webhook refuses to change what a waiting PipelineRun asks for.

        `replicated`: NATS has three servers.
        """
        self.world = world
        self.configuration = configuration
        self._settings = settings or {}
        self.refuses_starts = refuses_starts
        self.fixes_requests = fixes_requests or refuses_starts
        self.server = MemoryServer(world=world, replicated=replicated)
        self.newest = PLAIN
        """Reads what any release of this world wrote."""

        random = Random(f"cluster/{world.seed}")
        self.api = Api(now=world.now, random=random)
        self.api.admission.plugins.append(_Webhook(self, parse_rules(rules, CelEngine()), random))
        self.behaviour = ControllerManager(self.api, random=random)
        self.kube = LocalKube(self.api)
        """Client of the cluster without faults, for the scenario."""

        world.process(CLUSTER, self._live, mortal=False)

    def serve(
        self,
        service: str,
        *,
        replica: int = 1,
        dialect: Callable[[], Dialect] = lambda: PLAIN,
    ) -> Process:
        """Start a replica of `service` as a process that faults may crash.

        `dialect`: how the release that it starts with writes and reads messages.
        """
        build = SERVICES[service]

        async def start(context: ProcessContext) -> None:
            bus = MemoryBus(
                self.server, instance=context.instance, random=context.random, dialect=dialect()
            )
            running = build(self, context, bus)
            await bus.start()
            await running.run()

        return self.world.process(f"{service}-{replica}", start)

    def set_for(self, service: str) -> dict[str, Any]:
        """Return the operator's settings of a service, by name."""
        return dict(self._settings.get(service, {}))

    def cluster_for(self, context: ProcessContext) -> WorldKube:
        """Return the client of the cluster for a process, with faults."""
        user = PATCHER_USER if context.name.startswith("patcher-") else ADMINISTRATOR
        return WorldKube(LocalKube(self.api, user=user), context.world, cluster=CLUSTER)

    def start_faults(self) -> None:
        """Start to inject faults."""
        world = self.world

        def bus_restart() -> None:
            self.server.restart(down_seconds=world.between((0.1, 5.0)))

        world.start_faults(parties=("bus", CLUSTER), bus_restart=bus_restart)

    def message_logs(self, *, besides: str | None = None) -> MessageLogs:
        """Return all messages of the streams. `besides`: a cluster whose own messages are left out."""
        return read_logs(
            stored.entry()
            for log in LOGS
            for stored in self.server.streams[log].messages.values()
            if stored.subject.split(".")[2] != besides
        )

    async def _live(self, context: ProcessContext) -> None:
        del context
        self.behaviour.start()
        await asyncio.Event().wait()


class _Webhook:
    """The classifier's webhook, called in this process."""

    name = "sluicegate"

    def __init__(self, system: System, rules: Rules, random: Random) -> None:
        self._system = system
        self._policy = Policy.of(system.configuration)
        self._rules = rules
        self._random = random
        self._integrations = Integrations()

    async def mutate(self, request: AdmissionRequest) -> Obj | None:
        """Suspend and classify a created job; review what is changed in one."""
        if request.obj is None or request.subresource or request.operation == "DELETE":
            return request.obj
        try:
            if request.operation == "UPDATE":
                return self._update(request, request.obj)
            mutated = mutate(
                request.obj,
                self._rules,
                namespace=request.namespace,
                new_traceparent=lambda: new_traceparent(self._random, self._system.world.now()),
                context=self._context(request.namespace, request.obj),
            )
            if (integration := self._integration_of(request)) is not None:
                check_requests(request.obj, mutated.object, integration)
        except RefusedError as error:
            raise forbidden(request.kind, request.name, str(error)) from error
        placed: dict[str, Any] = mutated.object
        return placed

    def _integration_of(self, request: AdmissionRequest) -> Integration | None:
        found = SHIPPED.find(group=request.kind.group, kind=request.kind.kind)
        if found is not None or not self._system.configuration.integrations.frameworks:
            return found
        integrations = self._context(request.namespace).integrations
        return integrations.find(group=request.kind.group, kind=request.kind.kind)

    def _update(self, request: AdmissionRequest, obj: Obj) -> Obj:
        integration = self._integration_of(request)
        old = request.old
        if integration is None or old is None:
            return obj
        marks = [annotations_of(one).get(USER_PENDING) for one in (old, obj)]
        has_hold = integration.gate is not None or integration.propagates or integration.held(old)
        if has_hold or marks[0] != marks[1]:
            obj = self._reviewed_start(request, obj, old, integration)
        if self._system.fixes_requests:
            check_fixed(obj, old, integration, users=frozenset(), exempt=frozenset())
        return obj

    def _reviewed_start(
        self, request: AdmissionRequest, obj: Obj, old: Obj, integration: Integration
    ) -> Obj:
        # Reading all decisions for every release would make large worlds slow.
        needed = self._system.refuses_starts or annotations_of(old).get(USER_PENDING) == "true"
        context = self._context(request.namespace, with_decisions=needed)
        user = requester.get()
        reviewed: Obj = review_update(obj, old, integration, user=user, context=context).object
        return reviewed

    def _context(
        self, namespace: str, obj: Obj | None = None, *, with_decisions: bool = False
    ) -> NamespaceContext:
        """Return what the webhook knows of a namespace; here it knows it at once."""
        patchers = (PATCHER_USER,) if self._system.refuses_starts else ()
        namespace_defaults = NamespaceDefaults(
            cluster=CLUSTER, policy=self._policy, patchers=patchers
        )
        for kind in NamespaceDefaults.watched():
            for one in self._present(kind) if kind != INTEGRATION else ():
                namespace_defaults.observe(one)
        controller = None if obj is None else controller_uid(obj)
        if with_decisions or controller:
            view = self._system.server.view(Admission.stream)
            for message in map(self._system.newest.read, view.messages.values()):
                decided = message.headers.get(TYPE) == Admission.type
                if not with_decisions:  # Reading them all would make large worlds slow.
                    decided = decided and str(controller).encode() in message.data
                if decided and (admission := read(message.entry(), Admission)) is not None:
                    namespace_defaults.observe_admission(admission)
            namespace_defaults.on_decisions_read()
        return replace(namespace_defaults.context(namespace), integrations=self._kinds())

    def _kinds(self) -> Integrations:
        """Return the kinds that can wait now. They are kept: compiling them takes longer than all else."""
        present = {one.name: one for one in self._present(INTEGRATION)}
        known = {state.obj["metadata"]["name"] for state in self._integrations.states()}
        if not known <= present.keys():
            self._integrations = Integrations()
        for one in present.values():
            self._integrations.observe(one)
        return self._integrations

    def _present(self, kind: Kind) -> Iterator[Observed]:
        """Yield what a watcher would have observed of a kind."""
        api = self._system.api
        served = api.kinds.find(kind.group, kind.version, kind.plural)
        for stored in api.store.objects(served) if served is not None else ():
            yield observed(CLUSTER, kind, as_body(stored.copy(kind.version)))

    async def validate(self, request: AdmissionRequest) -> None:
        """Raise `ApiError` for an object that breaks the rules of its kind."""
        if request.obj is None or request.subresource:
            return
        old = None if request.old is None else _newest(request.old)
        problems = validate(_newest(request.obj), old)
        if problems:
            causes = [Cause(**problem.cause) for problem in problems]
            raise invalid(request.kind, request.name, causes)


def _newest(obj: Obj) -> Obj:
    """Return the object in the storage version, which the rules use."""
    ours = str(obj["apiVersion"]).partition("/")[0] == KUEUE_GROUP
    return convert(obj, f"{KUEUE_GROUP}/{STORAGE}") if ours else obj


_READ: dict[tuple[type[ServiceSettings], str], ServiceSettings] = {}


def set_up(kind: type[S], context: ProcessContext, **given: Any) -> S:
    """Return the settings of a process. The environment is read once, because a world starts hundreds."""
    key = (kind, repr(sorted(given.items())))
    if key not in _READ:
        _READ[key] = kind(instance="world", **given)
    # Validated already: the processes differ in their names only.
    settings = kind.model_construct(**{**dict(_READ[key]), "instance": context.instance})
    assert isinstance(settings, kind)
    return settings


def _watcher(system: System, context: ProcessContext, bus: Bus) -> Runnable:
    return watcher.assemble(
        settings=set_up(
            WatcherSettings, context, **{"cluster": CLUSTER, **WATCHED, **system.set_for("watcher")}
        ),
        bus=bus,
        kube=system.cluster_for(context),
        now=context.now,
        random=context.random,
    )


def _classifier(system: System, context: ProcessContext, bus: Bus) -> Runnable:
    del context
    policy = Policy.of(system.configuration)
    return classifier.assemble(bus=bus, cluster=CLUSTER, policy=policy)


def _quota(system: System, context: ProcessContext, bus: Bus) -> Runnable:
    own = system.set_for("quota")
    return quota.assemble(
        settings=set_up(QuotaSettings, context, **own),
        bus=bus,
        now=context.now,
        configuration=system.configuration,
    )


def _patcher(system: System, context: ProcessContext, bus: Bus) -> Runnable:
    return patcher.assemble(
        settings=set_up(PatcherSettings, context, cluster=CLUSTER, **system.set_for("patcher")),
        bus=bus,
        kube=system.cluster_for(context),
        now=context.now,
        configuration=system.configuration,
        entropy=context.random.randbytes,
    )


def _provisioner(system: System, context: ProcessContext, bus: Bus) -> Runnable:
    return provisioner.assemble(
        settings=set_up(ProvisionerSettings, context, **system.set_for("provisioner")),
        bus=bus,
        providers={},
        now=context.now,
        random=context.random,
    )


def _dispatcher(system: System, context: ProcessContext, bus: Bus) -> Runnable:
    return dispatcher.assemble(
        settings=set_up(DispatcherSettings, context, **system.set_for("dispatcher")),
        bus=bus,
        now=context.now,
        random=context.random,
    )


SERVICES: Final[Mapping[str, Build]] = {
    "watcher": _watcher,
    "classifier": _classifier,
    "quota": _quota,
    "dispatcher": _dispatcher,
    "patcher": _patcher,
    "provisioner": _provisioner,
}
"""Functions that build each service in a world."""
