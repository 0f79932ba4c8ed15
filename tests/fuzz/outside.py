"""Borders to clouds, browsers and build pods: answers and requests that no API server checked."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from services.console.http.handlers import _question
from services.console.status_error import StatusError
from services.provisioner.config.credentials import Secrets
from services.provisioner.keys.one_time_server import _read, _RefusedError
from services.provisioner.providers.ibm_power import PowerProvider
from services.provisioner.providers.ibm_vpc import VpcProvider
from services.provisioner.providers.port import ProviderError
from shared.contracts.messages.explain import ExplainRequest, PositionsRequest
from shared.contracts.seal import SealError, open_sealed, public_key_of, seal
from tests.fuzz.border import Border
from tests.fuzz.values import strings, texts

_VPC: Final = {
    "first": {"href": "https://x/instances?limit=100"}, "limit": 100, "total_count": 1, "next": None,
    "instances": [{
        "id": "i-1", "name": "prod-arm64-6b1f", "status": "running", "created_at": "2026-01-01T12:00:00Z",
        "primary_network_interface": {"id": "n-1", "name": "primary-private-nic",
                                      "primary_ip": {"address": "10.0.0.7"}},
    }],
    "floating_ips": [{"id": "f-1", "address": "10.0.0.8"}],
    "access_token": "t", "expires_in": 3600,
}  # fmt: skip
_POWER: Final = {
    "pvmInstances": [{
        "serverName": "prod-arm64-6b1f", "pvmInstanceID": "p-1", "status": "ACTIVE",
        "creationDate": "2026-01-01T12:00:00.000Z", "networks": [{"ipAddress": "10.0.0.7", "externalIP": ""}],
    }],
    "volumes": [{"bootVolume": True, "size": 20, "volumeID": "v-1"}],
    "access_token": "t", "expires_in": 3600,
}  # fmt: skip
_KEY: Final = bytes(range(32))
_BOX: Final = seal(
    b"secret", to=public_key_of(_KEY), context="c", entropy=lambda size: bytes(range(1, size + 1))
)
_REQUEST: Final = (
    "POST /otp HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nabcd"
)


class _Answer:
    """What a proxy, or a cloud, gives."""

    def __init__(self, body: bytes, status: int = 200) -> None:
        self._body, self.status = body, status
        self.ok = status < 400

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        return None

    async def read(self) -> bytes:
        return self._body

    async def text(self) -> str:
        return self._body.decode()

    async def json(self, **_: object) -> Any:
        return json.loads(self._body.decode())


class _Session:
    """A cloud that gives one answer to everything."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def request(self, *_: object, **__: object) -> _Answer:
        return _Answer(self._body)

    def post(self, *_: object, **__: object) -> _Answer:
        return _Answer(b'{"access_token": "t", "expires_in": 3600}')


class _Secrets(Secrets):
    def __init__(self) -> None:
        super().__init__(Path("/nowhere"))

    def read(self, *_: str) -> bytes:
        return b"key"


async def _ask(provider: VpcProvider | PowerProvider, data: bytes) -> object:
    provider._client._session = _Session(data)  # type: ignore[assignment]
    name = "prod-arm64-6b1f"
    found = []
    for ask in (provider.find, provider.list_owned, provider.terminate):
        try:
            found.append(await ask(name))
        except ProviderError:
            continue
    return found


def _vpc(data: bytes) -> object:
    return asyncio.run(_ask(VpcProvider({"url": "https://x"}, _Secrets()), data))


def _power(data: bytes) -> object:
    account = {"url": "https://x", "crn": "a:b:c:d:e:f:g:h:i:j"}
    return asyncio.run(_ask(PowerProvider(account, _Secrets()), data))


def _http(text: str) -> object:
    async def read() -> object:
        reader = asyncio.StreamReader(limit=8192)
        reader.feed_data(text.encode(errors="replace"))
        reader.feed_eof()
        return await _read(reader, _Writer())  # type: ignore[arg-type]

    return asyncio.run(read())


class _Writer:
    def write(self, _data: bytes) -> None:
        return None


def borders() -> Iterator[Border]:
    """Clouds, then questions, then keys."""
    yield Border(name="answer of IBM VPC", strategy=texts(_VPC), call=_vpc)
    yield Border(name="answer of IBM Power", strategy=texts(_POWER), call=_power)
    yield Border(
        name="request for a one-time key",
        strategy=strings(_REQUEST),
        call=_http,
        allowed=(_RefusedError,),
    )
    question = {
        "capacity": [{"clusterQueue": "a"}],
        "remove": ["Job/a/b"],
        "manifests": [],
        "horizon": "1h",
    }
    yield Border(
        name="question to the console",
        strategy=texts(question),
        call=_question,
        allowed=(StatusError,),
    )
    for kind, asked in (
        (ExplainRequest, {"namespace": "a", "name": "b", "cluster": None}),
        (PositionsRequest, {"namespace": "a", "queue": "b", "offset": 0, "limit": 10}),
    ):
        yield Border(
            name=f"question {kind.__name__}", strategy=texts(asked), call=kind.model_validate_json,
            allowed=(ValueError,),
        )  # fmt: skip
    yield Border(
        name="sealed box", strategy=strings(_BOX, "AAAA", "===="),
        call=lambda box: open_sealed(box, private_key=_KEY, context="c"), allowed=(SealError,),
    )  # fmt: skip
