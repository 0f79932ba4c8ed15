"""Machines of AWS EC2, on demand or spot.

One client for each region and credential. A machine's name is its `Name` tag and its client token, so
ordering it twice gives one machine. The tag `sluicegate-cluster` names its owner.
"""

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, TypeVar

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession, get_session
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    ParamValidationError,
)
from botocore.parsers import ResponseParserError

from services.provisioner.config.credentials import SecretError, Secrets
from services.provisioner.config.provider_types import AWS
from services.provisioner.providers.port import (
    ENDLESS,
    PAGES_MAX,
    Order,
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    Vm,
    VmState,
    check_parameters,
    read_bounded,
    translates_answers,
)
from services.provisioner.providers.registry import ProviderKind

T = TypeVar("T")

OWNER_TAG: Final = "sluicegate-cluster"
DISK_GIB: Final = 40
CONNECT_SECONDS: Final = 10
ANSWER_MAX: Final = 200
"""Characters of an answer that cannot be read that are quoted."""

STATES: Final = {
    "pending": VmState.STARTING,
    "running": VmState.RUNNING,
    "stopping": VmState.FAILED,
    "stopped": VmState.FAILED,
    "shutting-down": VmState.FAILED,
    "terminated": VmState.GONE,
}

_BUSY: Final = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientCapacityOnHost",
        "InstanceLimitExceeded",
        "VcpuLimitExceeded",
        "HostLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "SpotMaxPriceTooLow",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "EC2ThrottledException",
        "BandwidthLimitExceeded",
    }
)
"""Error codes after which a later retry may succeed."""

_UNKNOWN: Final = frozenset(
    {"InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable", "RequestTimeout"}
)
"""Error codes that do not say whether the call had its effect."""

_ALL_BUT_GONE: Final = ["pending", "running", "stopping", "stopped", "shutting-down"]


@dataclass(frozen=True, slots=True)
class _ReadBody:
    """The body of an answer that was read already."""

    data: bytes

    async def read(self) -> bytes:
        return self.data


class _BoundedSession(AIOHTTPSession):  # type: ignore[misc]
    """Reads of each answer up to a bound. aiobotocore reads all, unless the caller wants to do it."""

    async def send(self, request: Any) -> Any:
        request.stream_output = True
        answer = await super().send(request)
        try:
            answer.raw = _ReadBody(await read_bounded(answer.raw.content))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            answer.raw.close()
            raise HTTPClientError(error=error) from error
        return answer


@cache
def _session() -> AioSession:
    """Return the one session: it keeps the descriptions of AWS, which take a second to read."""
    return get_session()


class AwsProvider:
    """One region of one account."""

    def __init__(
        self,
        account: Mapping[str, str],
        secrets: Secrets,
        *,
        endpoint_url: str | None = None,
    ) -> None:
        self._region = account.get("region", "")
        self._secret = account.get("aws-secret", "")
        self._secrets = secrets
        self._endpoint_url = endpoint_url
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._credentials: tuple[str, ...] = ()
        self._connecting = asyncio.Lock()

    @translates_answers("aws")
    async def launch(self, order: Order) -> None:
        """Order an instance, unless one of that name exists or existed."""
        request = self._request(order)
        if await self._instances([{"Name": "tag:Name", "Values": [order.name]}]):
            return
        await self._call("launch", order.name, lambda ec2: ec2.run_instances(**request))

    @translates_answers("aws")
    async def find(self, name: str) -> Vm | None:
        """Describe one instance."""
        found = await self._instances([{"Name": "tag:Name", "Values": [name]}])
        # If there are several instances of that name, the one that is not terminated counts.
        found.sort(key=lambda one: _state(one) is VmState.GONE)
        return _vm(found[0]) if found else None

    @translates_answers("aws")
    async def list_owned(self, owner: str) -> Sequence[Vm]:
        """List all instances with the tags of `owner` that are not terminated."""
        found = await self._instances(
            [
                {"Name": "tag:MultiPlatformManaged", "Values": ["true"]},
                {"Name": f"tag:{OWNER_TAG}", "Values": [owner]},
                {"Name": "instance-state-name", "Values": _ALL_BUT_GONE},
            ]
        )
        return [_vm(one) for one in found if _tag(one, "Name")]

    @translates_answers("aws")
    async def terminate(self, name: str) -> None:
        """Terminate an instance."""
        found = await self._instances([{"Name": "tag:Name", "Values": [name]}])
        ids = [one["InstanceId"] for one in found if _state(one) is not VmState.GONE]
        if ids:
            await self._call(
                "terminate", name, lambda ec2: ec2.terminate_instances(InstanceIds=ids)
            )

    async def close(self) -> None:
        """Close the connections."""
        await self._stack.aclose()
        self._client = None

    async def _instances(self, filters: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        name, reason = str(filters[0]["Values"][0]), ENDLESS
        token: dict[str, str] = {}
        for _ in range(PAGES_MAX):
            request: dict[str, Any] = {"Filters": filters, "MaxResults": 1000, **token}
            page: dict[str, Any] = await self._call(
                "look for", name, partial(_describe, request=request)
            )
            if "Reservations" not in page:
                # A page of HTML may be well-formed XML. Read as a list, it says that all machines are gone.
                reason = "the answer is none of EC2: it has no reservations"
                break
            for reservation in page["Reservations"]:
                found += reservation.get("Instances", [])
            after = {"NextToken": page["NextToken"]} if page.get("NextToken") else {}
            if not after:
                return found
            if after == token:
                break  # A proxy that gives one answer to everything.
            token = after
        raise ProviderError("aws", "look for", name, reason)

    async def _call(self, action: str, name: str, call: Callable[[Any], Awaitable[T]]) -> T:
        try:
            return await call(await self._connected())
        except ClientError as error:
            raise _translated(action, name, error) from error
        except (ParamValidationError, SecretError) as error:
            raise ProviderRefusedError("aws", action, name, str(error)) from error
        except (ResponseParserError, RuntimeError) as error:
            # A proxy or a wrong AWS_ENDPOINT_URL answered with a page. The error quotes all of it. botocore
            # raises a RuntimeError for a time that no calendar has.
            reason = f"the answer is none of EC2: {str(error)[:ANSWER_MAX]}"
            raise ProviderError("aws", action, name, reason) from error
        except (BotoCoreError, OSError) as error:
            raise ProviderError("aws", action, name, str(error)) from error

    async def _connected(self) -> Any:
        """The client. A new one after the credentials were renewed."""
        credentials = (
            self._secrets.read(self._secret, "access-key-id").decode().strip(),
            self._secrets.read(self._secret, "secret-access-key").decode().strip(),
        )
        async with self._connecting:
            if self._client is not None and credentials == self._credentials:
                return self._client
            await self._stack.aclose()
            self._client = await self._stack.enter_async_context(
                _session().create_client(
                    "ec2",
                    region_name=self._region,
                    endpoint_url=self._endpoint_url,
                    aws_access_key_id=credentials[0],
                    aws_secret_access_key=credentials[1],
                    # The caller retries.
                    config=AioConfig(
                        retries={"total_max_attempts": 1},
                        connect_timeout=CONNECT_SECONDS,
                        http_session_cls=_BoundedSession,
                    ),
                )
            )
            self._credentials = credentials
            return self._client

    def _request(self, order: Order) -> dict[str, Any]:
        check_parameters("aws", order, AWS)
        given = order.parameters
        named = dict(order.tags)
        if given.get("strict-public-address") == "true":
            named["strict-public-address"] = "true"
        tags = [{"Key": key, "Value": value} for key, value in sorted(named.items())]
        network: dict[str, Any] = {}
        if given.get("security-group"):
            network["SecurityGroups"] = [given["security-group"]]
        if given.get("security-group-id"):
            network["SecurityGroupIds"] = [given["security-group-id"]]
        if given.get("subnet-id"):
            network["SubnetId"] = given["subnet-id"]
        request: dict[str, Any] = {
            "ImageId": given["ami"],
            "InstanceType": given["instance-type"],
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": hashlib.sha256(order.name.encode()).hexdigest(),
            "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": _disk(order)}],
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")
            ],
            # A machine that shuts itself down is not started again.
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"HttpTokens": "required"},
            **network,
            **_extras(given),
        }
        if given.get("key-name"):
            request["KeyName"] = given["key-name"]
        return request


async def _describe(ec2: Any, *, request: dict[str, Any]) -> dict[str, Any]:
    page: dict[str, Any] = await ec2.describe_instances(**request)
    return page


def _extras(given: Mapping[str, str]) -> dict[str, Any]:
    request: dict[str, Any] = {}
    if given.get("user-data"):
        request["UserData"] = base64.b64encode(given["user-data"].encode()).decode()
    profile = {
        field: given[key]
        for field, key in (("Name", "instance-profile-name"), ("Arn", "instance-profile-arn"))
        if given.get(key)
    }
    if profile:
        request["IamInstanceProfile"] = profile
    spot = given.get("spot-price") or given.get("max-spot-instance-price", "")
    if spot or given.get("spot") == "true":
        options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        price = {"MaxPrice": spot} if spot else {}
        request["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options | price}
    host = [given.get(key, "") for key in (
        "tenancy", "host-resource-group-arn", "license-configuration-arn"
    )]  # fmt: skip
    if all(host):
        request["Placement"] = {"Tenancy": host[0], "HostResourceGroupArn": host[1]}
        request["LicenseSpecifications"] = [{"LicenseConfigurationArn": host[2]}]
    return request


def _disk(order: Order) -> dict[str, Any]:
    disk: dict[str, Any] = {"DeleteOnTermination": True, "VolumeType": "gp3"}
    for field, key, default in (
        ("VolumeSize", "disk", DISK_GIB), ("Iops", "iops", 0), ("Throughput", "throughput", 0)
    ):  # fmt: skip
        number = int(order.parameters.get(key) or default)
        if number:
            disk[field] = number
    return disk


def _translated(action: str, name: str, error: ClientError) -> ProviderError:
    details = error.response.get("Error", {})
    code, text = str(details.get("Code", "")), str(details.get("Message", ""))
    reason = f"{code}: {text}"
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _BUSY:
        return ProviderBusyError("aws", action, name, reason)
    if code in _UNKNOWN or status >= 500:
        return ProviderError("aws", action, name, reason)
    return ProviderRefusedError("aws", action, name, reason)


def _state(instance: Mapping[str, Any]) -> VmState:
    return STATES.get(instance.get("State", {}).get("Name", ""), VmState.FAILED)


def _tag(instance: Mapping[str, Any], key: str) -> str:
    tags = instance.get("Tags") or []
    return next((str(tag["Value"]) for tag in tags if tag["Key"] == key), "")


def _vm(instance: Mapping[str, Any]) -> Vm:
    public, private = instance.get("PublicIpAddress"), instance.get("PrivateIpAddress")
    # `strict-public-address` is part of the order only, so it is kept as a tag of the instance.
    strict = _tag(instance, "strict-public-address") == "true"
    return Vm(
        name=_tag(instance, "Name"),
        state=_state(instance),
        address=str(public or ("" if strict else private) or ""),
        launched_at=instance.get("LaunchTime"),
    )


KIND: Final = ProviderKind(open=AwsProvider, ssh_user="ec2-user", rules=AWS)
"""`type: aws`."""
