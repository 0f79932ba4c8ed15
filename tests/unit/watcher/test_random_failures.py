"""Seeded failures of cluster, bus and watcher: the log ends as the cluster is, and never goes back."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from itertools import pairwise
from random import Random

import pytest
from typing_extensions import override

from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.contracts.kube.kinds import (
    CONFIGURATION_KINDS,
    JOB,
    WORKLOAD,
    Kind,
)
from shared.contracts.messages.observed import Observed
from shared.kube.port import ExpiredError, Listing, UnavailableError, WatchEvent
from tests.unit.watcher.harness import Harness, run_harness

WATCHED = (*CONFIGURATION_KINDS, WORKLOAD, JOB)


class Troubled(LocalKube):
    """A cluster with bad days: everything fails now and then."""

    def __init__(self, api: Api, random: Random) -> None:
        super().__init__(api)
        self._random = random

    @override
    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str | None = None
    ) -> Listing:
        if self._random.random() < 0.2:
            raise UnavailableError("bad day")
        return await super().list(kind, namespace=namespace, labels=labels)

    @override
    async def watch(
        self,
        kind: Kind,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str | None = None,
    ) -> AsyncIterator[WatchEvent]:
        if self._random.random() < 0.1:
            raise ExpiredError("old", status=410)
        async for event in super().watch(
            kind, resource_version=resource_version, namespace=namespace, labels=labels
        ):
            yield event
            if self._random.random() < 0.1:
                raise UnavailableError("reset")


@pytest.mark.parametrize("seed", range(30))
def test_random_failures_lose_no_state_and_keep_order(seed: int) -> None:
    chance = Random(seed)

    async def drive(harness: Harness) -> None:
        names = [f"j{number}" for number in range(8)]
        existing: set[str] = set()
        await harness.start(kube=Troubled(harness.api, chance))
        for _ in range(150):
            await asyncio.sleep(chance.choice((0.0, 0.01, 0.3, 5.0)))
            name = chance.choice(names)
            action = chance.random()
            if action < 0.03:
                await harness.kill()
                await harness.start(kube=Troubled(harness.api, chance))
            elif action < 0.06:
                harness.server.restart(down_seconds=chance.choice((0.1, 5, 30, 100)))
            elif action < 0.10:
                harness.api.store.forget_events()
            elif name not in existing:
                await harness.job(name)
                existing.add(name)
            elif action < 0.4:
                await harness.delete(name)
                existing.discard(name)
            else:
                await harness.touch(name, str(action))
        await asyncio.sleep(600)
        assert harness.view() == await harness.truth(*WATCHED)
        check_histories(harness.published())

    run_harness(drive, seed=seed)


def check_histories(messages: list[Observed]) -> None:
    """Of each object: versions only grow, one life after another, each of them ended."""
    histories: dict[str, list[Observed]] = defaultdict(list)
    for one in messages:
        histories[one.subject].append(one)
    for history in histories.values():
        for before, after in pairwise(history):
            assert int(before.resource_version) <= int(after.resource_version)
            assert before.message_id != after.message_id
            if before.uid != after.uid:
                assert before.deleted, "a life that others know of was never ended"
                assert not after.deleted or after.object is not None
