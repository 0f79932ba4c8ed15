"""Kueue's visibility API behind an API server, which asks in the names of its users."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from services.console.http.aggregation import AggregatedServer
from shared.contracts.kube.kinds import CONFIG_MAP
from shared.runtime.certificates import CertificateFolder, KeyPair, issue_authority, issue_client
from shared.runtime.web import WebServer
from shared.testing.waiting import eventually
from tests.integration.console.questions import CQ, LQ, positions
from tests.integration.console_stage import Place

GROUP = "/apis/visibility.kueue.x-k8s.io/v1beta2"
DANA = {"X-Remote-User": "system:serviceaccount:team:dana"}
BOB = {"X-Remote-User": "system:serviceaccount:team:bob"}


def config_map(authority: KeyPair, **data: Any) -> dict[str, Any]:
    """What API servers publish about themselves."""
    return {
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {
            "requestheader-client-ca-file": authority.certificate_pem().decode(),
            **{f"requestheader-{key.replace('_', '-')}": json.dumps(v) for key, v in data.items()},
        },
    }


@dataclass
class Proxy:
    """An API server that hands on questions."""

    url: str
    server: AggregatedServer
    folder: Path
    session: aiohttp.ClientSession

    async def ask(
        self, path: str, headers: dict[str, str], *, signed_by: KeyPair, name: str = "front-proxy"
    ) -> tuple[int, Any]:
        shown = issue_client(signed_by, name, datetime.now(UTC))
        (self.folder / "client.crt").write_bytes(shown.certificate_pem())
        (self.folder / "client.key").write_bytes(shown.key_pem())
        tls = ssl.create_default_context(cafile=self.folder / "ca.crt")
        tls.load_cert_chain(self.folder / "client.crt", self.folder / "client.key")
        async with self.session.get(self.url + path, headers=headers, ssl=tls) as response:
            return response.status, await response.json()

    async def without_certificate(self, path: str, headers: dict[str, str]) -> None:
        tls = ssl.create_default_context(cafile=self.folder / "ca.crt")
        async with self.session.get(self.url + path, headers=headers, ssl=tls) as response:
            await response.read()


@asynccontextmanager
async def proxy(place: Place, folder: Path) -> AsyncIterator[Proxy]:
    assert place.kube is not None
    new_server = partial(
        WebServer,
        host="127.0.0.1",
        port=0,
        certificates=CertificateFolder(folder, ["127.0.0.1"]),
        now=lambda: datetime.now(UTC),
        stop_seconds=1,
    )
    server = AggregatedServer(place.queries, place.kube, new_server, reread_seconds=0.05)
    running = asyncio.create_task(server.run())
    try:
        await eventually(lambda: server.port is not None)
        url = f"https://127.0.0.1:{server.port}"
        # A connection for each question: each shows a certificate of its own.
        connector = aiohttp.TCPConnector(force_close=True)
        patience = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(connector=connector, timeout=patience) as session:
            yield Proxy(url, server, folder, session)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_users_of_the_api_server_see_what_their_roles_allow(
    place: Place, tmp_path: Path
) -> None:
    assert place.kube is not None
    authority, other = (issue_authority(datetime.now(UTC)) for _ in range(2))
    published = config_map(authority, allowed_names=["front-proxy"])
    await place.kube.create(CONFIG_MAP, published)
    async with proxy(place, tmp_path) as here:
        code, listed = await here.ask(GROUP, {}, signed_by=authority)
        assert (code, listed["kind"]) == (200, "APIResourceList")

        code, found = await here.ask(CQ, DANA, signed_by=authority)
        assert (code, positions(found)) == (200, [("team/first", 1, 0), ("team/second", 2, 1)])
        code, refused = await here.ask(LQ, BOB, signed_by=authority)
        assert (code, refused["reason"]) == (403, "Forbidden")

        # A token in the request is the API server's business: nobody but it says who asks.
        code, refused = await here.ask(
            CQ, {"Authorization": "Bearer token-of-root"}, signed_by=authority
        )
        assert (code, refused["reason"]) == (401, "Unauthorized")
        code, refused = await here.ask(CQ, DANA, signed_by=authority, name="somebody")
        assert (code, "somebody" in refused["message"]) == (401, True)
        assert (await here.ask("/api/v1/queues", DANA, signed_by=authority))[0] == 404
        for nobody in (
            *(
                {"X_Remote_User": "dana"},
                {"X-Remote-User": ""},
                {"X-Remote-Group": "system:masters"},
            ),
            {"X-Remote-Extra-X-Remote-User": "dana", "X-Forwarded-User": "dana"},
        ):
            assert (await here.ask(CQ, nobody, signed_by=authority))[0] == 401, nobody
        with pytest.raises((aiohttp.ClientError, TimeoutError)):
            await here.without_certificate(CQ, DANA)
        with pytest.raises((aiohttp.ClientError, TimeoutError)):
            await here.ask(f"{CQ}?limit={'9' * 300_000}", DANA, signed_by=authority)
        assert (await here.ask(CQ, DANA, signed_by=authority))[0] == 200
        with pytest.raises((aiohttp.ClientError, TimeoutError)):
            await here.ask(CQ, DANA, signed_by=other)

        # The API server has another authority from now on.
        await place.kube.patch(
            CONFIG_MAP, "kube-system", published["metadata"]["name"], config_map(other)
        )

        async def is_believed() -> bool:
            here.url = f"https://127.0.0.1:{here.server.port}"
            try:
                return (await here.ask(CQ, DANA, signed_by=other))[0] == 200
            except (aiohttp.ClientError, TimeoutError):  # It may be closing.
                return False

        await eventually(is_believed)
        with pytest.raises((aiohttp.ClientError, TimeoutError)):
            await here.ask(CQ, DANA, signed_by=authority)
