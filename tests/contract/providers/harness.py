"""Harnesses of the contract suite: one provider with its cloud, and how to make that cloud fail."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from moto.server import ThreadedMotoServer

from services.provisioner.config.credentials import Secrets
from services.provisioner.naming import machine_name
from services.provisioner.providers.aws import AwsProvider
from services.provisioner.providers.fake import FakeCloud, FakeProvider
from services.provisioner.providers.ibm_power import PowerProvider
from services.provisioner.providers.ibm_vpc import VpcProvider
from services.provisioner.providers.port import (
    Order,
    Provider,
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    Vm,
    VmState,
)
from shared.testing.waiting import eventually
from tests.contract.providers.ibm_double import API_KEY, CRN, IbmDouble, ibm_double

Refuse = Callable[[type[ProviderError]], None]


@dataclass(slots=True, kw_only=True)
class ProviderHarness:
    """A provider and its cloud."""

    provider: Provider
    parameters: Mapping[str, str]
    again: Callable[[], Provider]
    """Makes another client of the same account, as a provisioner does after a crash."""

    refuse: Refuse | None = None
    """Lets the next order fail with that error. None if the cloud cannot."""

    lose_answer: Callable[[], None] | None = None
    """Lets the next order take effect and fail. None if the cloud cannot."""

    missing: str = ""
    """A required parameter; empty if there is none."""

    details: dict[str, Any] = field(default_factory=dict)

    def order(self, uid: str = "t-1", *, owner: str = "hub", **parameters: str) -> Order:
        name = machine_name(cluster=owner, uid=uid, attempt=1, tag="world")
        return Order(
            name=name,
            owner=owner,
            platform="linux/arm64",
            tag="world",
            tags={
                "MultiPlatformManaged": "true",
                "multi-platform-instance": "world",
                "Name": name,
                "taskRunID": f"team-a:{uid}",
                "sluicegate-cluster": owner,
            },
            parameters={**self.parameters, **parameters},
        )

    async def wait_for(self, name: str, state: VmState, *, address: bool = False) -> Vm | None:
        vm: Vm | None = None

        async def is_there() -> bool:
            nonlocal vm
            vm = await self.provider.find(name)
            reached = VmState.GONE if vm is None else vm.state
            return reached is state and (vm is None or bool(vm.address) or not address)

        await eventually(is_there, lambda: f"{name} is {vm}, not {state}", look_seconds=0.02)
        return vm


@asynccontextmanager
async def fake_harness(folder: Path) -> AsyncIterator[ProviderHarness]:
    del folder
    cloud = FakeCloud(
        now=lambda: datetime.now(UTC), call_seconds=0, boot_seconds=0.05, terminate_seconds=0.05
    )

    def refuse(kind: type[ProviderError]) -> None:
        cloud.fail_next("launch", kind("fake", "launch", "m", "no"))

    def lose_answer() -> None:
        cloud.fail_next("launch", ProviderError("fake", "launch", "m", "lost"), after=True)

    yield ProviderHarness(
        provider=FakeProvider(cloud),
        parameters={},
        again=lambda: FakeProvider(cloud),
        refuse=refuse,
        lose_answer=lose_answer,
    )


@asynccontextmanager
async def aws_harness(folder: Path) -> AsyncIterator[ProviderHarness]:
    secret = folder / "aws-account"
    secret.mkdir()
    (secret / "access-key-id").write_text("AKIACANARY")
    (secret / "secret-access-key").write_text("canary")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    made: list[AwsProvider] = []

    def client() -> AwsProvider:
        account = {"region": "us-east-1", "aws-secret": "aws-account"}
        made.append(AwsProvider(account, Secrets(folder), endpoint_url=url))
        return made[-1]

    parameters = {
        "region": "us-east-1",
        "aws-secret": "aws-account",
        "ami": "ami-12c6146b",
        "instance-type": "m6g.large",
        "disk": "50",
    }
    try:
        provider = client()
        yield ProviderHarness(
            provider=provider, parameters=parameters, again=client, missing="ami",
            details={"url": url, "provider": provider},
        )  # fmt: skip
    finally:
        for one in made:
            await one.close()
        async with aiohttp.ClientSession() as term:
            await term.post(f"{url}/moto-api/reset")
        server.stop()


def _refusing(double: IbmDouble) -> Refuse:
    answers: dict[type[ProviderError], tuple[int, str]] = {
        ProviderBusyError: (429, "slow down"),
        ProviderRefusedError: (403, "not_authorized"),
        ProviderError: (500, "internal_error"),
    }

    def refuse(kind: type[ProviderError]) -> None:
        double.refuse = answers[kind]

    return refuse


def _losing(double: IbmDouble) -> Callable[[], None]:
    def lose() -> None:
        double.lose_answer = True

    return lose


def _key(folder: Path) -> Secrets:
    (folder / "ibm").mkdir()
    (folder / "ibm" / "api-key").write_text(API_KEY)
    return Secrets(folder)


@asynccontextmanager
async def vpc_harness(folder: Path) -> AsyncIterator[ProviderHarness]:
    async with ibm_double() as double:
        secrets, account = _key(folder), {"url": f"{double.url}/v1", "secret": "ibm"}
        made: list[VpcProvider] = []

        def client() -> VpcProvider:
            made.append(VpcProvider(account, secrets, iam_url=double.iam_url))
            return made[-1]

        parameters = {
            "vpc": "v", "key": "k", "subnet": "s", "image-id": "i", "region": "us-east",
            "profile": "bz2-2x8", "url": account["url"], "secret": "ibm",
        }  # fmt: skip
        yield ProviderHarness(
            provider=client(), parameters=parameters, again=client, refuse=_refusing(double),
            lose_answer=_losing(double), missing="vpc", details={"double": double},
        )  # fmt: skip
        for one in made:
            await one.close()


@asynccontextmanager
async def power_harness(folder: Path) -> AsyncIterator[ProviderHarness]:
    async with ibm_double() as double:
        secrets = _key(folder)
        account = {"url": double.url, "crn": CRN, "secret": "ibm"}
        made: list[PowerProvider] = []

        def client() -> PowerProvider:
            made.append(PowerProvider(account, secrets, iam_url=double.iam_url))
            return made[-1]

        parameters = {
            "crn": CRN, "network": "n", "system": "e980", "image": "i", "key": "k",
            "url": double.url, "secret": "ibm", "cores": "0.5",
        }  # fmt: skip
        yield ProviderHarness(
            provider=client(), parameters=parameters, again=client, refuse=_refusing(double),
            lose_answer=_losing(double), missing="image", details={"double": double},
        )  # fmt: skip
        for one in made:
            await one.close()


HARNESSES = {"fake": fake_harness, "aws": aws_harness, "ibmz": vpc_harness, "ibmp": power_harness}
