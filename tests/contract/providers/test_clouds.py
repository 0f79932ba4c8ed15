"""What only one cloud has: spot instances, error codes, public addresses, states."""

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from services.provisioner.config.credentials import Secrets
from services.provisioner.providers import aws, ibm_power, ibm_vpc
from services.provisioner.providers.aws import AwsProvider
from services.provisioner.providers.port import (
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    Vm,
    VmState,
)
from tests.contract.providers.harness import aws_harness, power_harness, vpc_harness

ERRORS = {
    "InsufficientInstanceCapacity": (500, ProviderBusyError),
    "RequestLimitExceeded": (503, ProviderBusyError),
    "MaxSpotInstanceCountExceeded": (400, ProviderBusyError),
    "InternalError": (500, ProviderError),
    "Unavailable": (503, ProviderError),
    "UnauthorizedOperation": (403, ProviderRefusedError),
    "InvalidAMIID.NotFound": (400, ProviderRefusedError),
}


@pytest.mark.parametrize("code", ERRORS)
def test_ec2_error_code_maps_to_error_class(code: str) -> None:
    status, kind = ERRORS[code]
    response: Any = {
        "Error": {"Code": code, "Message": "because"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    error = aws._translated("launch", "m", ClientError(response, "RunInstances"))
    assert type(error) is kind
    assert error.reason == f"{code}: because"


async def test_ec2_client_token_is_derived_from_name(
    tmp_path: Path,
) -> None:
    async with aws_harness(tmp_path) as harness:
        provider: AwsProvider = harness.details["provider"]
        tokens = [
            provider._request(harness.order(uid))["ClientToken"] for uid in ("t-1", "t-1", "t-2")
        ]
        assert tokens[0] == tokens[1] != tokens[2]
        assert len(tokens[0]) <= 64, "longer ones are refused"


async def test_ec2_instance_has_tags_and_may_be_spot(tmp_path: Path) -> None:
    async with aws_harness(tmp_path) as harness:
        order = harness.order(**{"spot-price": "0.1", "user-data": "#cloud-config"})
        await harness.provider.launch(order)
        [instance] = await harness.details["provider"]._instances(
            [{"Name": "tag:Name", "Values": [order.name]}]
        )
        tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
        assert tags.items() >= dict(order.tags).items()
        assert instance["InstanceLifecycle"] == "spot"
        assert instance["InstanceType"] == "m6g.large"


async def test_ec2_order_with_missing_subnet_or_credentials_is_refused(tmp_path: Path) -> None:
    async with aws_harness(tmp_path) as harness:
        with pytest.raises(ProviderRefusedError, match="InvalidSubnetID"):
            await harness.provider.launch(harness.order(**{"subnet-id": "subnet-0"}))
        nobody = aws.AwsProvider({"region": "us-east-1", "aws-secret": "none"}, Secrets(tmp_path))
        with pytest.raises(ProviderRefusedError, match="may not be configured correctly"):
            await nobody.find("m")


async def test_stopped_ec2_instance_has_failed_and_terminated_one_is_gone(
    tmp_path: Path,
) -> None:
    async with aws_harness(tmp_path) as harness:
        order = harness.order()
        await harness.provider.launch(order)
        provider = harness.details["provider"]
        [instance] = await provider._instances([{"Name": "tag:Name", "Values": [order.name]}])
        ec2 = await provider._connected()
        await ec2.stop_instances(InstanceIds=[instance["InstanceId"]])
        await harness.wait_for(order.name, VmState.FAILED)
        await ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])
        await harness.wait_for(order.name, VmState.GONE)
        await harness.provider.launch(order)
        vm = await harness.provider.find(order.name)
        assert vm is not None
        assert vm.state is VmState.GONE, "the name was used; a new machine has a new one"


def test_strict_public_address_hides_private_address() -> None:
    tags = [{"Key": "Name", "Value": "m"}]
    instance = {"Tags": tags, "State": {"Name": "running"}, "PrivateIpAddress": "10.0.0.9"}
    assert aws._vm(instance).address == "10.0.0.9"
    strict = {**instance, "Tags": [*tags, {"Key": "strict-public-address", "Value": "true"}]}
    assert aws._vm(strict) == Vm(name="m", state=VmState.RUNNING, address="")


async def test_vpc_instance_has_public_address_unless_private_ip_is_set(tmp_path: Path) -> None:
    async with vpc_harness(tmp_path) as harness:
        public, private = harness.order("t-1"), harness.order("t-2", **{"private-ip": "true"})
        for order in (public, private):
            await harness.provider.launch(order)
        vm = await harness.wait_for(public.name, VmState.RUNNING, address=True)
        assert vm is not None
        assert vm.address.startswith("150.")
        vm = await harness.wait_for(private.name, VmState.RUNNING, address=True)
        assert vm is not None
        assert vm.address.startswith("10.1.")

        await harness.provider.terminate(public.name)
        assert harness.details["double"].floating == {}


STATES = {
    "pending": VmState.STARTING, "starting": VmState.STARTING, "restarting": VmState.STARTING,
    "running": VmState.RUNNING, "stopping": VmState.FAILED, "stopped": VmState.FAILED,
    "failed": VmState.FAILED, "deleting": VmState.FAILED, "hibernating": VmState.STARTING,
    "BUILD": VmState.STARTING, "ACTIVE": VmState.RUNNING, "SHUTOFF": VmState.FAILED,
    "ERROR": VmState.FAILED, "DELETING": VmState.FAILED, "HARD_REBOOT": VmState.STARTING,
}  # fmt: skip


@pytest.mark.parametrize(("status", "state"), STATES.items())
def test_ibm_state_maps_to_vm_state_and_unknown_one_is_starting(
    status: str, state: VmState
) -> None:
    if status.isupper():
        assert ibm_power._vm({"serverName": "m", "status": status}).state is state
    else:
        network = {"name": "public", "primary_ip": {"address": "10.1.0.9"}}
        vm = ibm_vpc._vm(
            {"name": "m", "status": status, "primary_network_interface": network}, "150.0.0.1"
        )
        assert (vm.state, bool(vm.address)) == (state, state is VmState.RUNNING)


async def test_vpc_list_reads_all_pages(tmp_path: Path) -> None:
    async with vpc_harness(tmp_path) as harness:
        for number in range(103):
            harness.details["double"].instances[str(number)] = {
                "id": str(number), "name": harness.order(f"t-{number}").name, "status": "running",
                "asked": 0, "primary_network_interface": {"id": "n", "name": "public"},
            }  # fmt: skip
        assert len(await harness.provider.list_owned("hub")) == 103


@pytest.mark.parametrize(("key", "value"), [("disk", "50"), ("cores", "many"), ("crn", "crn:v1")])
async def test_power_order_with_invalid_parameter_is_refused(
    tmp_path: Path, key: str, value: str
) -> None:
    async with power_harness(tmp_path) as harness:
        with pytest.raises(ProviderRefusedError, match=key):
            await harness.provider.launch(harness.order(**{key: value}))


async def test_wrong_api_key_is_refused_and_not_quoted(tmp_path: Path) -> None:
    async with power_harness(tmp_path) as harness:
        (tmp_path / "ibm" / "api-key").write_text("canary-wrong")
        with pytest.raises(ProviderRefusedError) as caught:
            await harness.provider.find("m")
        assert "canary" not in str(caught.value)


async def test_cloud_over_quota_is_busy(tmp_path: Path) -> None:
    async with power_harness(tmp_path) as harness:
        harness.details["double"].refuse = (400, "insufficient resources: over_quota")
        with pytest.raises(ProviderBusyError):
            await harness.provider.launch(harness.order())


async def test_power_enlarges_disk_once_and_orders_one_machine(tmp_path: Path) -> None:
    async with power_harness(tmp_path) as harness:
        order, tries = harness.order(disk="120"), 0
        while True:
            tries += 1
            try:
                await harness.provider.launch(order)
            except ProviderBusyError:
                assert tries < 20
            else:
                break
        assert tries > 1, "the disk was not there at first, then locked"
        [server] = harness.details["double"].servers.values()
        assert server["disk"] == 120
        await harness.again().launch(order)
        assert len(harness.details["double"].servers) == 1
