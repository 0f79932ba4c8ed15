"""Somebody who believes what a reflector says."""

import asyncio
from collections import Counter
from contextlib import aclosing, suppress
from random import Random

from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import Kind
from shared.kube.port import Kube
from shared.kube.reflector import Changed, Deleted, Listed, Reflector, Unserved


class Follower:
    """Applies what a reflector says, and counts."""

    def __init__(self, kube: Kube, kind: Kind, namespace: str | None = None) -> None:
        self.kube = kube
        self.reflector = Reflector(kube=kube, kind=kind, namespace=namespace, random=Random(1))
        self.view: dict[str, str] = {}
        self.told: Counter[tuple[str, str]] = Counter()
        self.lists = 0
        self.unserved: list[bool] = []
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async with aclosing(self.reflector.run()) as reflections:
            async for reflection in reflections:
                match reflection:
                    case Listed():
                        self.lists += 1
                        self.view = {name_of(item): uid_of(item) for item in reflection.items}
                    case Changed():
                        self.view[name_of(reflection.object)] = uid_of(reflection.object)
                        self.told[type_and_version(reflection)] += 1
                    case Deleted():
                        del self.view[name_of(reflection.object)]
                        self.told[type_and_version(reflection)] += 1
                    case Unserved():
                        self.unserved.append(reflection.certain)

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self.kube.close()


def name_of(obj: Body) -> str:
    return obj["metadata"]["name"]


def uid_of(obj: Body) -> str:
    return obj["metadata"]["uid"]


def type_and_version(said: Changed | Deleted) -> tuple[str, str]:
    return type(said).__name__, said.object["metadata"]["resourceVersion"]
