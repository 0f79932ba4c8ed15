"""Answers what single pages ask, for one user, as far as they may see it."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from services.console.access.reviews import User
from services.console.pages.alerts import Alerts
from services.console.pages.balances import Balances
from services.console.pages.documents import (
    AlertList,
    FlavorList,
    GivenList,
    PlatformList,
    SpokeList,
    StartList,
    Timeline,
    Trend,
    Use,
)
from services.console.pages.given import given
from services.console.pages.locations import flavor_detail, platforms, spokes
from services.console.pages.starts import Starts
from services.console.pages.timeline import Links, timeline
from services.console.pages.trends import SPANS, Trends
from services.console.pages.use import UseHistory
from services.console.query_service import QueryService
from services.console.rows import usable
from services.console.status_error import ConsoleRule, StatusError, bad_request, not_found
from shared.bus.port import Bus
from shared.contracts.kube import kinds
from shared.contracts.refs import QueueRef, WorkloadRef
from shared.contracts.subjects import UnusableNameError

READ_SECONDS: Final = 20.0
"""How long an answer that is read from a log may take."""

TREND_SECONDS: Final = 0.3
"""How long figures of the past wait for the logs. Then they say what was read so far, however long the
logs are, so that the page is there within a second; the page asks again until all is read."""

READS_MAX: Final = 4
"""How many such answers are read at once. The others wait for their turn."""

T = TypeVar("T")


class PageService:
    """One for each process."""

    def __init__(
        self,
        *,
        queries: QueryService,
        bus: Bus,
        links: Links | None = None,
        prometheus: str = "",
    ) -> None:
        """`prometheus`: its address, for the alerts that ring there. Empty: there is none."""
        self.alerts_known = Alerts(view=queries.view, bus=bus, prometheus=prometheus)
        queries.view.on_idle(self.alerts_known.forget)
        self.trends = Trends(bus=bus, now=queries.view.now)
        queries.view.on_idle(self.trends.forget)
        self.starts_known = Starts(queries)
        queries.view.on_idle(self.starts_known.forget)
        self.use_history = UseHistory(bus=bus, now=queries.view.now)
        queries.view.on_idle(self.use_history.forget)
        self.balances = Balances(queries.view)
        queries.view.on_idle(self.balances.forget)
        self._queries = queries
        self._bus = bus
        self._links = links or Links()
        self._reading = asyncio.Semaphore(READS_MAX)

    async def timeline(self, user: User, ref: WorkloadRef) -> Timeline:
        """What happened to a workload, also to one that has ended and left the views."""
        authorizer = self._queries.authorizer
        await authorizer.visible_namespaces(user, ref.namespace)
        known = await authorizer.known_namespaces(user)

        def shows(namespace: str) -> bool:
            return namespace == ref.namespace or known(namespace)

        try:
            found = await self._read(
                lambda: timeline(self._bus, ref, shows=shows, links=self._links)
            )
        except UnusableNameError as error:
            raise not_found(f'workloads "{ref.path[:100]}"') from error
        if not found.items:
            raise not_found(f'workloads "{ref.path}"')
        return found

    async def trend(self, user: User, span: str, namespace: str | None = None) -> Trend:
        """Admissions, preemptions and waits of the recent past."""
        _check_span(span)
        shows = await self._queries.authorizer.visible_namespaces(user, namespace)
        return await self.trends.trend(span, shows=shows, wait_seconds=TREND_SECONDS)

    async def alerts(self, user: User) -> AlertList:
        """What rings, for who may see the ClusterQueues."""
        await self._queries.authorizer.require_list(user, kinds.CLUSTER_QUEUE.plural)
        return await self.alerts_known.firing()

    async def quota(self, user: User) -> str:
        """Where the quota of ClusterQueues and cohorts is, as JSON."""
        await self._queries.authorizer.require_list(user, kinds.CLUSTER_QUEUE.plural)
        return self.balances.text()

    async def given(self, user: User, ref: WorkloadRef) -> GivenList:
        """What a workload asks, and what it was given."""
        authorizer = self._queries.authorizer
        await authorizer.visible_namespaces(user, ref.namespace)
        shows_flavors = await authorizer.may_list(user, kinds.RESOURCE_FLAVOR.plural)
        found = given(self._queries.view, ref, shows_flavors=shows_flavors)
        if found is None:
            raise not_found(f'workloads "{ref.path[:100]}"')
        return found

    async def use(self, user: User, cluster: str, name: str, span: str) -> Use:
        """Quota that a ClusterQueue had reserved over time."""
        _check_span(span)
        await self._queries.authorizer.require_list(user, kinds.CLUSTER_QUEUE.plural)
        self._check_queue(cluster, name)
        return await self.use_history.of(cluster, name, span, wait_seconds=TREND_SECONDS)

    def _check_queue(self, cluster: str, name: str) -> None:
        """Raise `StatusError` unless there is such a ClusterQueue."""
        if self._queries.view.queue(QueueRef(cluster, "", name))[0] is None:
            raise not_found(f'clusterqueues "{name[:100]}"')

    async def starts(
        self, user: User, cluster: str, name: str, *, namespace: str | None = None
    ) -> StartList:
        """When the workloads of a ClusterQueue probably start, of the namespaces that the user may see."""
        shows = await self._queries.authorizer.visible_namespaces(user, namespace)
        self._check_queue(cluster, name)
        found = await self.starts_known.of(user, cluster, name)
        items = [each for each in found.items if shows(each.namespace)]
        return StartList(items=items, unknown_because=found.unknown_because)

    async def flavors(self, user: User) -> FlavorList:
        """The ResourceFlavors."""
        await self._queries.authorizer.require_list(user, kinds.RESOURCE_FLAVOR.plural)
        observed = self._queries.view.observed(kinds.RESOURCE_FLAVOR)
        found = (
            usable(each.stream, each.subject, partial(flavor_detail, each)) for each in observed
        )
        return FlavorList(items=[flavor for flavor in found if flavor is not None])

    async def spokes(self, user: User) -> SpokeList:
        """The spokes."""
        await self._queries.authorizer.require_list(user, kinds.MULTIKUEUE_CLUSTER.plural)
        configured = self._queries.view.observed(kinds.MULTIKUEUE_CLUSTER)
        return SpokeList(items=await self._read(lambda: spokes(self._bus, configured)))

    async def machines(self, user: User) -> PlatformList:
        """The build machines of each platform, for who may see the ClusterQueues that count them."""
        authorizer = self._queries.authorizer
        await authorizer.require_list(user, kinds.CLUSTER_QUEUE.plural)
        shows = await authorizer.known_namespaces(user)
        return PlatformList(items=await self._read(lambda: platforms(self._bus, shows=shows)))

    async def _read(self, reading: Callable[[], Awaitable[T]]) -> T:
        """Its result. Raises `StatusError` 503 if the log is not read in time."""
        try:
            async with asyncio.timeout(READ_SECONDS), self._reading:
                return await reading()
        except TimeoutError as error:
            raise StatusError(
                ConsoleRule.SLOW_LOG, seconds=READ_SECONDS, retry_after_seconds=30
            ) from error


def _check_span(span: str) -> None:
    """Raise `StatusError` 400 for a span that there is not."""
    if span not in SPANS:
        raise bad_request("span", f"{span[:20]!r} is none of {', '.join(SPANS)}")
