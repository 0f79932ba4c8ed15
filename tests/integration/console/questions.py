"""What the tests ask the console, and how they read its answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from shared.bus.port import UnavailableError
from tests.integration.console_stage import SETTLED_SECONDS, Place

Json = dict[str, Any]
CQ = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads"
LQ = "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/main/pendingworkloads"
EXPLAIN = "/api/v1/namespaces/team/workloads"
DANA, ROOT, BOB, VIZ = (f"token-of-{name}" for name in ("dana", "root", "bob", "viz"))


def positions(body: Json) -> list[tuple[str, int, int]]:
    return [
        (
            f"{item['metadata']['namespace']}/{item['metadata']['name']}",
            item["positionInClusterQueue"],
            item["positionInLocalQueue"],
        )
        for item in body["items"]
    ]


def bigger(cpu: int) -> Json:
    quota = {"name": "cpu", "nominalQuota": str(cpu)}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
    }  # fmt: skip


@asynccontextmanager
async def listening(place: Place, token: str | None, query: str = "") -> AsyncIterator[Any]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with place.session.get(f"{place.url}/api/v1/events{query}", headers=headers) as response:
        yield response


async def event(response: aiohttp.ClientResponse, name: str) -> Json:
    """The data of the next event of that name."""
    async with asyncio.timeout(SETTLED_SECONDS):
        while True:
            found = ""
            assert not response.content.at_eof(), "the events ended"
            while line := (await response.content.readline()).decode().rstrip("\n"):
                if line.startswith("event: "):
                    found = line[7:]
                elif line.startswith("data: ") and found == name:
                    data: Json = json.loads(line[6:])
                    return data


async def over_nats(place: Place, endpoint: str, **question: Any) -> Json:
    subject, data = f"sluice.rpc.console.{endpoint}", json.dumps(question).encode()
    answer: Json = json.loads(
        await place.site.bus.request(subject, data, timeout_seconds=SETTLED_SECONDS)
    )
    return answer


async def refusal_over_nats(place: Place, endpoint: str, **question: Any) -> str:
    try:
        await over_nats(place, endpoint, **question)
    except UnavailableError as error:
        return str(error).removeprefix(f"sluice.rpc.console.{endpoint}: ")
    return ""
