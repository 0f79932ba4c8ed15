"""Borders to clouds, browsers and build pods: answers and requests that no API server checked."""

import asyncio
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Final, Self, cast
from xml.sax.saxutils import escape

from botocore.exceptions import ClientError
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.parsers import EC2QueryParser
from hypothesis import strategies as st
from nats.errors import TimeoutError as NatsTimeoutError

from services.console.http.handlers import _question
from services.console.status_error import StatusError
from services.provisioner.config.credentials import Secrets
from services.provisioner.keys.one_time_server import _read, _RefusedError
from services.provisioner.providers.aws import AwsProvider
from services.provisioner.providers.ibm_power import PowerProvider
from services.provisioner.providers.ibm_vpc import VpcProvider
from services.provisioner.providers.port import ProviderError
from shared.bus.admin.accounts import spoke_access
from shared.bus.nats.bus import NatsBus
from shared.bus.port import BusError
from shared.bus.spoke_gateway.requests import RefusedError as GatewayError
from shared.bus.spoke_gateway.requests import SpokeRequests
from shared.contracts.messages.explain import ExplainRequest, PositionsRequest
from shared.contracts.seal import SealError, open_sealed, public_key_of, seal
from tests.fuzz.border import Border
from tests.fuzz.values import broken, strings, texts, written

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
_ENDLESS_VPC: Final = {**_VPC, "next": {"href": "https://x/instances?start=abc&limit=100"}}
_POWER: Final = {
    "pvmInstances": [{
        "serverName": "prod-arm64-6b1f", "pvmInstanceID": "p-1", "status": "ACTIVE",
        "creationDate": "2026-01-01T12:00:00.000Z", "networks": [{"ipAddress": "10.0.0.7", "externalIP": ""}],
    }],
    "volumes": [{"bootVolume": True, "size": 20, "volumeID": "v-1"}],
    "access_token": "t", "expires_in": 3600,
}  # fmt: skip
_EC2: Final = {
    "requestId": "r-1", "nextToken": "",
    "reservationSet": [{"reservationId": "r-1", "instancesSet": [{
        "instanceId": "i-1", "instanceState": {"code": "16", "name": "running"},
        "launchTime": "2026-01-01T12:00:00.000Z", "ipAddress": "10.0.0.8", "privateIpAddress": "10.0.0.7",
        "tagSet": [{"key": "Name", "value": "prod-arm64-6b1f"},
                   {"key": "strict-public-address", "value": "true"}],
    }]}],
}  # fmt: skip
_EC2_ERROR: Final = {
    "Errors": {"Error": {"Code": "Throttling", "Message": "later"}},
    "RequestID": "r-1",
}
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


def _xml(value: Any) -> str:
    """As EC2 writes it: the items of a list are elements `item`."""
    if isinstance(value, dict):
        parts = ((re.sub(r"[^A-Za-z]", "", str(key)) or "x", each) for key, each in value.items())
        return "".join(f"<{name}>{_xml(each)}</{name}>" for name, each in parts)
    if isinstance(value, list):
        return "".join(f"<item>{_xml(each)}</item>" for each in value)
    return "" if value is None else escape(written(value).decode().strip('"'))


def _answers_of_ec2() -> st.SearchStrategy[tuple[int, bytes]]:
    """Status and body: nearly an answer of EC2, nearly an error of it, or what a proxy has to say."""
    found = broken(_EC2).map(
        lambda value: f"<DescribeInstancesResponse>{_xml(value)}</DescribeInstancesResponse>"
    )
    errors = broken(_EC2_ERROR).map(lambda value: f"<Response>{_xml(value)}</Response>")
    pages = strings(
        f"<DescribeInstancesResponse>{_xml(_EC2)}</DescribeInstancesResponse>",
        "<!doctype html><html><body><p>502</body></html>", '<?xml version="1.0"?><a xmlns="b"/>',
        '<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;&b;">]><a>&d;</a>', '{"a": 1}',
    )  # fmt: skip
    bodies = st.one_of(found, found, errors, pages).map(lambda text: text.encode(errors="replace"))
    return st.tuples(st.sampled_from([200, 200, 400, 403, 503]), bodies)


class _Ec2:
    """A client whose answers are parsed by the library's own parser."""

    def __init__(self, status: int, body: bytes) -> None:
        self._status, self._body = status, body

    async def describe_instances(self, **_: object) -> Any:
        return self._parsed("DescribeInstances")

    async def terminate_instances(self, **_: object) -> Any:
        return self._parsed("TerminateInstances")

    def _parsed(self, operation: str) -> Any:
        shape = _model_of_ec2().operation_model(operation).output_shape
        answer = {"status_code": self._status, "headers": {}, "body": self._body}
        parsed = EC2QueryParser().parse(answer, shape)
        if self._status >= 300:
            raise ClientError(parsed, operation)
        return parsed


@cache
def _model_of_ec2() -> ServiceModel:
    loader = Loader(include_default_search_paths=True)
    return ServiceModel(loader.load_service_model("ec2", "service-2"), "ec2")


class _Aws(AwsProvider):
    def __init__(self, client: _Ec2) -> None:
        super().__init__({"region": "us-east-1"}, _Secrets())
        self._fake = client

    async def _connected(self) -> Any:
        return self._fake


def _ec2(answer: tuple[int, bytes]) -> object:
    async def ask() -> object:
        provider = _Aws(_Ec2(*answer))
        found = []
        for call in (provider.find, provider.list_owned, provider.terminate):
            try:
                found.append(await call("prod-arm64-6b1f"))
            except ProviderError:
                continue
        return found

    return asyncio.run(ask())


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


class _DeafServer:
    """A connection on which nobody answers."""

    _error_cb = None

    def new_inbox(self) -> str:
        return "_INBOX.west.a"

    async def request(self, *_: object, **__: object) -> None:
        raise NatsTimeoutError


def _ask_gateway(asked: tuple[list[str], bytes]) -> object:
    requests = SpokeRequests(cast("NatsBus", SimpleNamespace(connection=None)))
    requests._connection = SimpleNamespace(nc=_DeafServer())  # type: ignore[assignment]
    return asyncio.run(requests._ask(spoke_access("west"), *asked))


_CONSUMER: Final = {
    "stream_name": "DISPATCHES_NOW",
    "config": {"deliver_policy": "all", "filter_subjects": ["sluice.dispatch.west.>"],
               "inactive_threshold": 60_000_000_000, "replay_policy": "instant"},
}  # fmt: skip
_ASKED: Final = st.one_of(
    st.tuples(st.just(["CONSUMER", "CREATE", "DISPATCHES_NOW", "a"]), texts(_CONSUMER)),
    st.tuples(
        st.just(["STREAM", "MSG", "GET", "DISPATCHES"]),
        texts({"last_by_subj": "sluice.dispatch.west.a.b"}, {"seq": 5}),
    ),
    st.tuples(st.lists(strings("STREAM", "INFO", "CONSUMER", "DISPATCHES"), max_size=5), texts({})),
)


def borders() -> Iterator[Border]:
    """Clouds, then questions, then keys."""
    yield Border(
        name="request of a spoke", strategy=_ASKED, call=_ask_gateway,
        allowed=(GatewayError, ValueError, BusError),
    )  # fmt: skip
    yield Border(name="answer of EC2", strategy=_answers_of_ec2(), call=_ec2)
    yield Border(name="answer of IBM VPC", strategy=texts(_VPC, _ENDLESS_VPC), call=_vpc)
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
