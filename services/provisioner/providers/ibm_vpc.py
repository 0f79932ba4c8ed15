"""Machines of IBM Cloud VPC (s390x). Never run on the real cloud, see `ibm`."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from services.provisioner.config.credentials import Secrets
from services.provisioner.config.provider_types import IBM_VPC
from services.provisioner.providers.ibm import (
    IAM_URL,
    IbmClient,
    is_owned_by,
    number_parameter,
    parse_time,
)
from services.provisioner.providers.port import (
    ENDLESS,
    PAGES_MAX,
    Order,
    ProviderError,
    Vm,
    VmState,
    check_parameters,
    translates_answers,
)
from services.provisioner.providers.registry import ProviderKind

VERSION: Final = {"version": "2025-01-14", "generation": "2"}
DISK_GB: Final = 100
NO_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - what the API shows before there is one
CONFLICT: Final = 409

PUBLIC: Final = "public"
PRIVATE: Final = "private"
"""Name of the network interface: it says which of its addresses is used."""

STATES: Final = {
    "pending": VmState.STARTING,
    "starting": VmState.STARTING,
    "restarting": VmState.STARTING,
    "running": VmState.RUNNING,
    "stopping": VmState.FAILED,
    "stopped": VmState.FAILED,
    "failed": VmState.FAILED,
    "deleting": VmState.FAILED,
}


class VpcProvider:
    """One region of one account."""

    def __init__(
        self, account: Mapping[str, str], secrets: Secrets, *, iam_url: str = IAM_URL
    ) -> None:
        self._client = IbmClient(
            provider="ibmz",
            url=account.get("url", "").rstrip("/"),
            secrets=secrets,
            secret=account.get("secret", ""),
            params=VERSION,
            iam_url=iam_url,
        )

    @translates_answers("ibmz")
    async def launch(self, order: Order) -> None:
        """Order an instance, unless one of that name exists. Names are unique in a region."""
        check_parameters("ibmz", order, IBM_VPC)
        given = order.parameters
        instance = await self._get(order.name)
        private = given.get("private-ip") == "true"
        volume = {
            "capacity": int(number_parameter(order, "disk", DISK_GB)),
            "profile": {"name": "general-purpose"},
        }
        body: dict[str, Any] = {
            "name": order.name,
            "profile": {"name": given["profile"]},
            "vpc": {"id": given["vpc"]},
            "zone": {"name": given.get("zone") or f"{given['region']}-2"},
            "keys": [{"id": given["key"]}],
            "image": {"id": given["image-id"]},
            "boot_volume_attachment": {"volume": volume, "delete_volume_on_instance_delete": True},
            "primary_network_interface": {
                "name": PRIVATE if private else PUBLIC,
                "subnet": {"id": given["subnet"]},
                "allow_ip_spoofing": False,
            },
        }
        if given.get("user-data"):
            body["user_data"] = given["user-data"]
        if instance is None:
            status, made = await self._client.request(
                "POST", "/instances", "launch", order.name, body=body
            )
            # 409: an earlier order of this name got through between the two requests.
            instance = await self._get(order.name) if status == CONFLICT else made
        if instance is not None and not private:
            await self._float(instance, order.name)

    @translates_answers("ibmz")
    async def find(self, name: str) -> Vm | None:
        """Describe one instance."""
        instance = await self._get(name)
        if instance is None:
            return None
        return _vm(instance, await self._floating(instance, name))

    @translates_answers("ibmz")
    async def list_owned(self, owner: str) -> Sequence[Vm]:
        """List all instances whose name carries the mark of `owner`."""
        found: list[Vm] = []
        start: dict[str, str] = {}
        for _ in range(PAGES_MAX):
            page = await self._client.read_page(
                "/instances", "instances", "list", owner, params={"limit": "100", **start}
            )
            found += [
                _vm(instance, "")
                for instance in page["instances"]
                if is_owned_by(str(instance["name"]), owner)
            ]
            following = (page.get("next") or {}).get("href", "")
            if "start=" not in following:
                return found
            before, start = start, {"start": following.partition("start=")[2].partition("&")[0]}
            if start == before:
                break  # A proxy that gives one answer to everything.
        raise ProviderError("ibmz", "list", owner, ENDLESS)

    @translates_answers("ibmz")
    async def terminate(self, name: str) -> None:
        """Terminate an instance and its public address."""
        instance = await self._get(name)
        if instance is None:
            return
        for address in await self._floating_ips(instance, name):
            await self._client.request(
                "DELETE", f"/floating_ips/{address['id']}", "terminate", name
            )
        await self._client.request("DELETE", f"/instances/{instance['id']}", "terminate", name)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _get(self, name: str) -> dict[str, Any] | None:
        page = await self._client.read_page(
            "/instances", "instances", "find", name, params={"name": name}
        )
        found: list[dict[str, Any]] = page["instances"]
        return found[0] if found else None

    async def _float(self, instance: Mapping[str, Any], name: str) -> None:
        if await self._floating_ips(instance, name):
            return
        target = {"id": instance["primary_network_interface"]["id"]}
        body = {"name": f"{name[:58]}-ip", "target": target}
        # 409: an earlier order made it already.
        await self._client.request("POST", "/floating_ips", "launch", name, body=body)

    async def _floating(self, instance: Mapping[str, Any], name: str) -> str:
        if instance.get("status") != "running":
            return ""
        addresses = await self._floating_ips(instance, name)
        return str(addresses[0].get("address", "")) if addresses else ""

    async def _floating_ips(self, instance: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
        network = instance["primary_network_interface"]["id"]
        path = f"/instances/{instance['id']}/network_interfaces/{network}/floating_ips"
        _, page = await self._client.request("GET", path, "find", name)
        found: list[dict[str, Any]] = page.get("floating_ips", [])
        return found


def _vm(instance: Mapping[str, Any], floating: str) -> Vm:
    network = instance.get("primary_network_interface") or {}
    address = floating
    if network.get("name") == PRIVATE:
        address = (network.get("primary_ip") or {}).get("address", "")
    # The list of states may grow. An unknown state counts as starting, which has a time-out.
    state = STATES.get(str(instance.get("status")), VmState.STARTING)
    reachable = state is VmState.RUNNING and address != NO_ADDRESS
    return Vm(
        name=str(instance["name"]),
        state=state,
        address=address if reachable else "",
        launched_at=parse_time(instance.get("created_at")),
    )


KIND: Final = ProviderKind(open=VpcProvider, ssh_user="root", rules=IBM_VPC)
"""`type: ibmz`."""
