"""A console over real HTTP, beside a quota service that decides, and a cluster that says who may."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal

import aiohttp

from services.console.access.reviews import AllowAll, KubeReviewer, Reviewer
from services.console.app import Console, assemble
from services.console.http.handlers import console_app
from services.console.http.sign_in import SignIn
from services.console.query_service import QueryService
from services.console.settings import ConsoleSettings
from services.simulator.app import Simulator
from services.simulator.manifests import apply_all
from shared.contracts.controllers import ANSWERED_BY, MULTIKUEUE
from shared.contracts.kube import kinds
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.hosts import HostSlot, Machine, PlatformState
from shared.contracts.messages.spokes import SpokeCounts, SpokeState
from shared.kube.client import HttpKube
from shared.runtime.certificates import CertificateFolder
from shared.runtime.web import WebServer
from shared.testing.waiting import PATIENCE_SECONDS, first_value
from shared.testing.world.memory_bus import MemoryBus
from tests.clock import now
from tests.integration.explain_stage import Site

SETTLED_SECONDS = PATIENCE_SECONDS
Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
READS_WORKLOADS = [{"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list"]}]
READS_QUEUES = [
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["clusterqueues"], "verbs": ["get", "list"]}
]
READS_PLACES = [
    {
        "apiGroups": ["kueue.x-k8s.io"],
        "resources": ["resourceflavors", "multikueueclusters"],
        "verbs": ["list"],
    }
]
READS_PENDING = [
    {
        "apiGroups": ["visibility.kueue.x-k8s.io"],
        "resources": ["clusterqueues/pendingworkloads"],
        "verbs": ["get"],
    }
]


def account(name: str) -> Json:
    """A token of that name for an account of that name."""
    return {
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": name, "namespace": "team",
            "annotations": {"kubernetes.io/service-account.name": name},
        },
        "data": {"token": base64.b64encode(f"token-of-{name}".encode()).decode()},
    }  # fmt: skip


def bound(name: str, rules: list[Json], namespace: str | None = None) -> list[Json]:
    """A role for that account, here or everywhere."""
    kind = "Role" if namespace else "ClusterRole"
    metadata = {"name": f"{name}-{len(rules[0]['resources'][0])}", "namespace": namespace}
    metadata = {key: value for key, value in metadata.items() if value}
    subject = {"kind": "ServiceAccount", "namespace": "team", "name": name}
    ref = {"apiGroup": RBAC, "kind": kind, "name": metadata["name"]}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules},
        {"apiVersion": f"{RBAC}/v1", "kind": f"{kind}Binding", "metadata": metadata,
         "roleRef": ref, "subjects": [subject]},
    ]  # fmt: skip


def namespace(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


PEOPLE: list[Json] = [
    namespace("team"),
    namespace("others"),
    # dana belongs to one team, lena to the others, root to all, bob to none; viz has Kueue's own role.
    *map(account, ("dana", "lena", "root", "bob", "viz")),
    *bound("dana", READS_WORKLOADS, "team"),
    *bound("dana", READS_QUEUES),
    *bound("lena", READS_WORKLOADS, "others"),
    *bound("root", READS_WORKLOADS),
    *bound("root", READS_QUEUES),
    *bound("root", READS_PLACES),
    *bound("viz", READS_PENDING),
]


@dataclass(kw_only=True)
class Handler:
    code: int
    body: Any
    headers: Json


@dataclass(kw_only=True)
class Place:
    """A console, and somebody who asks it."""

    site: Site
    url: str
    session: aiohttp.ClientSession
    cluster: Simulator | None = None
    bus: MemoryBus
    queries: QueryService
    kube: HttpKube | None = None
    token: str | None = None

    async def ask(self, path: str, token: str | None = None, body: Any = None) -> Handler:
        """GET, or POST where there is a body."""
        token = token or self.token
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        method = "GET" if body is None else "POST"
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        async with self.session.request(
            method, self.url + path, headers=headers, data=None if data is None else BytesIO(data)
        ) as response:
            content = await response.read()
            is_json = response.content_type == "application/json"
            return Handler(
                code=response.status,
                body=json.loads(content) if is_json else content.decode(),
                headers=dict(response.headers),
            )

    async def until(
        self,
        path: str,
        code: int,
        shows: Callable[[Any], bool] = lambda _body: True,
        *,
        token: str | None = None,
    ) -> Handler:
        """The answer once it has that code and `shows` holds of it."""
        answer: Handler | None = None

        async def expected() -> Handler | None:
            nonlocal answer
            answer = await self.ask(path, token)
            return answer if answer.code == code and shows(answer.body) else None

        return await first_value(
            expected,
            lambda: f"GET {path} has still another answer: {answer}",
            seconds=SETTLED_SECONDS,
        )


async def furnish_places(site: Site) -> None:
    """Spoke `east` is connected, `west` unknown; `linux/arm64` has two machines and three slots."""
    at = now()
    for name in ("east", "west"):
        await site.observe(kinds.MULTIKUEUE_CLUSTER, name, {})
    east = SpokeState(
        cluster="hub", spoke="east", active=True, reason="Active", message="Connected",
        counts=SpokeCounts(offered=2, chosen=1, withdrawing=1), latency_seconds=0.7, failures=1,
        free={"cpu": "3", "memory": "12Gi"}, at=at,
    )  # fmt: skip
    common: Json = {"provider": "aws", "launched_at": at, "deadline": at, "holder": "u"}
    machines = [
        Machine(name="arm-1", state="running", shared=True, task_run="team:build", **common),
        Machine(name="arm-2", state="launching", task_run="others:build", **common),
    ]
    seats = [
        HostSlot(
            uid=f"u-{number}",
            namespace=of,
            name=f"build-{number}",
            host="arm-1",
            address="",
            state=state,
        )
        for number, (of, state) in enumerate(SEATS)
    ]
    platform = PlatformState(
        cluster="hub", platform="linux/arm64", seats=seats, machines=machines,
        refusals={"u-9": "no machine is left"}, at=at,
    )  # fmt: skip
    for message in (east, platform):
        await site.bus.publish(message)


async def lose_spoke(site: Site, name: str) -> None:
    """A spoke does not answer any more, which rings an alert."""
    lost = SpokeState(
        cluster="hub", spoke=name, active=False, reason="ClientConnectionFailed",
        message="no heartbeat for 45 s", at=now(),
    )  # fmt: skip
    await site.bus.publish(lost)


SEATS: list[tuple[str, Literal["held", "ready"]]] = [
    ("team", "ready"), ("team", "held"), ("others", "ready"),
]  # fmt: skip


async def reserved(site: Site, name: str) -> None:
    """A workload of `team` that has quota, and waits for the check `far`, which leads to spokes."""
    active = {"type": "Active", "status": "True", "reason": "Up", "message": ""}
    await site.observe(
        kinds.ADMISSION_CHECK,
        "far",
        {"controllerName": MULTIKUEUE},
        status={"conditions": [active]},
    )
    checks = {"admissionChecks": [{"name": "far"}]}
    await site.queue("checked", cpu=2, admissionChecksStrategy=checks)
    await site.local("checked", "checked")
    await site.workload(name, queue="checked")


async def answer_check(site: Site, name: str, state: str, message: str, **more: Any) -> None:
    """The dispatcher says how check `far` of a workload of `team` stands."""
    answer = CheckState.model_validate(
        {
            "cluster": "hub", "namespace": "team", "name": name, "uid": f"u-{name}", "check": "far",
            "service": ANSWERED_BY[MULTIKUEUE], "state": state, "message": message, "at": now(), **more,
        }
    )  # fmt: skip
    await site.bus.publish(answer)


async def evicted(site: Site) -> None:
    """Workload `runs`, which had all of queue `cq`, is evicted for `urgent`, and its pods run still."""
    await site.workload("runs", cpu="4", age=99, phase="running", pods_active=True)
    preemption = {"withinClusterQueue": "LowerPriority"}
    await site.queue(cpu=4, cohortName="shared", preemption=preemption)
    await site.workload("urgent", cpu="4", priority=9)


async def cluster_of_people() -> Simulator:
    """A cluster whose people have roles."""
    cluster = Simulator(behaviour=False)
    await cluster.start()
    await apply_all(cluster.api, [("test", document) for document in PEOPLE])
    return cluster


def service_of(bus: MemoryBus, access: Reviewer, prometheus: str) -> Console:
    """The console; what it asks Prometheus is asked again after a moment."""
    settings = ConsoleSettings(
        console_prometheus_url=prometheus,
        console_trace_url="https://traces.example/{trace}",
        console_job_url="https://jobs.example/{namespace}/{kind}/{name}",
    )
    service = assemble(settings=settings, bus=bus, now=now, access=access)
    known = service.pages
    asked = (
        known.trends,
        known.starts_known,
        known.use_history,
        known.alerts_known,
        known.balances,
    )
    for each in asked:
        each.fresh_seconds = 0.05
    return service


@asynccontextmanager
async def console(
    *,
    people: bool,
    certificates: CertificateFolder | None = None,
    access: Reviewer | None = None,
    sign_in: SignIn | None = None,
    prometheus: str = "",
) -> AsyncIterator[Place]:
    """Everything, with people who have roles, or with everybody on this machine.

    `access`: somebody else than the simulated cluster says who may what.
    """
    site = Site()
    await site.bus.start()
    await site.basics()
    await site.start_quota()
    bus = MemoryBus(site.server, instance="console-a")
    await bus.start()
    cluster: Simulator | None = None
    kube: HttpKube | None = None
    if people and access is None:
        cluster = await cluster_of_people()
        kube = HttpKube.at(cluster.url)
        access = KubeReviewer(kube, allowed_seconds=0.2, denied_seconds=0.2)
    service = service_of(bus, access or AllowAll(), prometheus)
    server = WebServer(
        console_app(
            service.queries, service.pages, streams_max=3, local_only=not people, sign_in=sign_in
        ),
        host="127.0.0.1",
        port=0,
        now=now,
        certificates=certificates,
        stop_seconds=1,
    )
    running = asyncio.create_task(service.run())
    port = await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            url = f"{'http' if certificates is None else 'https'}://127.0.0.1:{port}"
            yield Place(
                site=site,
                url=url,
                session=session,
                cluster=cluster,
                bus=bus,
                queries=service.queries,
                kube=kube,
            )
    finally:
        await server.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await bus.stop()
        await site.close()
        if cluster is not None and kube is not None:
            await kube.close()
            await cluster.stop()
