"""What only one cloud has: spot machines, its own words for "not now", public addresses."""

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
from tests.contract.providers.stage import aws_stage, power_stage, vpc_stage

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
def test_each_error_of_ec2_says_what_can_be_done(code: str) -> None:
    status, kind = ERRORS[code]
    response: Any = {
        "Error": {"Code": code, "Message": "because"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    error = aws._translated("launch", "m", ClientError(response, "RunInstances"))
    assert type(error) is kind
    assert error.reason == f"{code}: because"


async def test_ec2_is_given_the_name_as_a_token_since_its_lists_are_behind_its_orders(
    tmp_path: Path,
) -> None:
    async with aws_stage(tmp_path) as stage:
        provider: AwsProvider = stage.details["provider"]
        tokens = [
            provider._request(stage.order(uid))["ClientToken"] for uid in ("t-1", "t-1", "t-2")
        ]
        assert tokens[0] == tokens[1] != tokens[2]
        assert len(tokens[0]) <= 64, "longer ones are refused"


async def test_ec2_machines_carry_the_tags_and_the_disk_and_may_be_spot(tmp_path: Path) -> None:
    async with aws_stage(tmp_path) as stage:
        order = stage.order(**{"spot-price": "0.1", "user-data": "#cloud-config"})
        await stage.provider.launch(order)
        [instance] = await stage.details["provider"]._instances(
            [{"Name": "tag:Name", "Values": [order.name]}]
        )
        tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
        assert tags.items() >= dict(order.tags).items()
        assert instance["InstanceLifecycle"] == "spot"
        assert instance["InstanceType"] == "m6g.large"


async def test_ec2_says_so_where_there_is_no_such_network_or_credential(tmp_path: Path) -> None:
    async with aws_stage(tmp_path) as stage:
        with pytest.raises(ProviderRefusedError, match="InvalidSubnetID"):
            await stage.provider.launch(stage.order(**{"subnet-id": "subnet-0"}))
        nobody = aws.AwsProvider({"region": "us-east-1", "aws-secret": "none"}, Secrets(tmp_path))
        with pytest.raises(ProviderRefusedError, match="may not be configured correctly"):
            await nobody.find("m")


async def test_a_stopped_ec2_machine_has_failed_and_one_that_aws_took_back_is_gone(
    tmp_path: Path,
) -> None:
    async with aws_stage(tmp_path) as stage:
        order = stage.order()
        await stage.provider.launch(order)
        provider = stage.details["provider"]
        [instance] = await provider._instances([{"Name": "tag:Name", "Values": [order.name]}])
        ec2 = await provider._connected()
        await ec2.stop_instances(InstanceIds=[instance["InstanceId"]])
        await stage.until(order.name, VmState.FAILED)
        await ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])
        await stage.until(order.name, VmState.GONE)
        await stage.provider.launch(order)
        vm = await stage.provider.find(order.name)
        assert vm is not None
        assert vm.state is VmState.GONE, "the name was used; a new machine has a new one"


def test_a_strict_public_address_is_waited_for() -> None:
    tags = [{"Key": "Name", "Value": "m"}]
    instance = {"Tags": tags, "State": {"Name": "running"}, "PrivateIpAddress": "10.0.0.9"}
    assert aws._vm(instance).address == "10.0.0.9"
    strict = {**instance, "Tags": [*tags, {"Key": "strict-public-address", "Value": "true"}]}
    assert aws._vm(strict) == Vm(name="m", state=VmState.RUNNING, address="")


async def test_vpc_machines_have_a_public_address_unless_asked_otherwise(tmp_path: Path) -> None:
    async with vpc_stage(tmp_path) as stage:
        public, private = stage.order("t-1"), stage.order("t-2", **{"private-ip": "true"})
        for order in (public, private):
            await stage.provider.launch(order)
        vm = await stage.until(public.name, VmState.RUNNING, address=True)
        assert vm is not None
        assert vm.address.startswith("150.")
        vm = await stage.until(private.name, VmState.RUNNING, address=True)
        assert vm is not None
        assert vm.address.startswith("10.1.")

        await stage.provider.terminate(public.name)
        assert stage.details["double"].floating == {}


STATES = {
    "pending": VmState.STARTING, "starting": VmState.STARTING, "restarting": VmState.STARTING,
    "running": VmState.RUNNING, "stopping": VmState.FAILED, "stopped": VmState.FAILED,
    "failed": VmState.FAILED, "deleting": VmState.FAILED, "hibernating": VmState.STARTING,
    "BUILD": VmState.STARTING, "ACTIVE": VmState.RUNNING, "SHUTOFF": VmState.FAILED,
    "ERROR": VmState.FAILED, "DELETING": VmState.FAILED, "HARD_REBOOT": VmState.STARTING,
}  # fmt: skip


@pytest.mark.parametrize(("status", "state"), STATES.items())
def test_each_state_of_ibm_says_what_can_be_done_and_one_that_is_new_may_pass(
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


async def test_vpc_lists_page_by_page(tmp_path: Path) -> None:
    async with vpc_stage(tmp_path) as stage:
        for number in range(103):
            stage.details["double"].instances[str(number)] = {
                "id": str(number), "name": stage.order(f"t-{number}").name, "status": "running",
                "asked": 0, "primary_network_interface": {"id": "n", "name": "public"},
            }  # fmt: skip
        assert len(await stage.provider.list_owned("hub")) == 103


@pytest.mark.parametrize(("key", "value"), [("disk", "50"), ("cores", "many"), ("crn", "crn:v1")])
async def test_power_refuses_what_cannot_be(tmp_path: Path, key: str, value: str) -> None:
    async with power_stage(tmp_path) as stage:
        with pytest.raises(ProviderRefusedError, match=key):
            await stage.provider.launch(stage.order(**{key: value}))


async def test_a_wrong_api_key_is_refused_and_not_quoted(tmp_path: Path) -> None:
    async with power_stage(tmp_path) as stage:
        (tmp_path / "ibm" / "api-key").write_text("canary-wrong")
        with pytest.raises(ProviderRefusedError) as caught:
            await stage.provider.find("m")
        assert "canary" not in str(caught.value)


async def test_a_full_cloud_is_busy(tmp_path: Path) -> None:
    async with power_stage(tmp_path) as stage:
        stage.details["double"].refuse = (400, "insufficient resources: over_quota")
        with pytest.raises(ProviderBusyError):
            await stage.provider.launch(stage.order())


async def test_power_makes_a_disk_larger_once_and_orders_one_machine(tmp_path: Path) -> None:
    async with power_stage(tmp_path) as stage:
        order, tries = stage.order(disk="120"), 0
        while True:
            tries += 1
            try:
                await stage.provider.launch(order)
            except ProviderBusyError:
                assert tries < 20
            else:
                break
        assert tries > 1, "the disk was not there at first, then locked"
        [server] = stage.details["double"].servers.values()
        assert server["disk"] == 120
        await stage.again().launch(order)
        assert len(stage.details["double"].servers) == 1
