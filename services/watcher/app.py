"""Builds the watcher. The only module that knows all of its parts."""

import random as random_module
from collections.abc import Callable
from datetime import datetime
from random import Random

from services.watcher.scopes import stages
from services.watcher.settings import WatcherSettings
from services.watcher.term import Term
from shared.bus.leadership import lead
from shared.bus.port import Bus
from shared.kube.port import Kube
from shared.runtime.host import run_service
from shared.runtime.service import NO_OVERRIDES, Overrides, Parts, Program, utc_now


class Watcher:
    """Watches one cluster in each term that it holds the lease.

    The lease only saves work. If two watchers work at once, the fence of each message keeps an older state
    from following a newer one.
    """

    def __init__(
        self, *, settings: WatcherSettings, bus: Bus, new_term: Callable[[], Term]
    ) -> None:
        self._cluster = settings.cluster
        self._bus = bus
        self._new_term = new_term
        self._term: Term | None = None

    async def run(self) -> None:
        """Run one term after another, until cancelled."""
        await lead(self._bus, f"watcher-{self._cluster}", self._run_term)

    def ready(self) -> str | None:
        """Why it is not ready; None also while another replica holds the lease."""
        return None if self._term is None else self._term.not_synced()

    async def _run_term(self) -> None:
        self._term = self._new_term()
        try:
            await self._term.run()
        finally:
            self._term = None


def assemble(
    *,
    settings: WatcherSettings,
    bus: Bus,
    kube: Kube,
    now: Callable[[], datetime],
    random: Random,
) -> Watcher:
    """Wire the parts. Opens nothing."""

    def new_term() -> Term:
        return Term(
            cluster=settings.cluster,
            stages=stages(settings.kinds, settings.namespaces),
            namespaces=settings.namespaces,
            until_pods_gone=settings.release_quota == "podsGone",
            bus=bus,
            kube=kube,
            now=now,
            random=random,
        )

    return Watcher(settings=settings, bus=bus, new_term=new_term)


def program(overrides: Overrides = NO_OVERRIDES) -> Program:
    """The watcher as `sluice run` starts it, set by the environment and by `overrides`."""
    settings = WatcherSettings(**overrides)

    def build(parts: Parts) -> Watcher:
        # Imported here: the world builds a watcher without an HTTP client.
        from shared.kube.client import HttpKube  # noqa: PLC0415

        kube = HttpKube.for_service(settings.kubeconfig, context=settings.kube_context)
        parts.on_stop(kube.close)
        return assemble(
            settings=settings, bus=parts.bus, kube=kube, now=utc_now, random=random_module.Random()
        )

    return Program(name="watcher", settings=settings, build=build)


def main() -> int:
    """Entry point of `sluice run watcher`."""
    return run_service(program())
