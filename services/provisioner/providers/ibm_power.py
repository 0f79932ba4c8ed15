"""Machines of IBM Power Virtual Server (ppc64le). Never run on the real cloud, see `ibm`."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from services.provisioner.config.credentials import Secrets
from services.provisioner.config.provider_types import IBM_POWER
from services.provisioner.providers.ibm import (
    IAM_URL,
    IbmClient,
    is_owned_by,
    number_parameter,
    parse_time,
)
from services.provisioner.providers.port import (
    Order,
    ProviderBusyError,
    ProviderRefusedError,
    Vm,
    VmState,
    check_parameters,
    translates_answers,
)
from services.provisioner.providers.registry import ProviderKind

INSTANCES: Final = "/pvm-instances"
CORES: Final = 0.25
MEMORY_GB: Final = 2
_CRN_PARTS_MIN: Final = 8
CONFLICT: Final = 409
NOT_FOUND: Final = 404

STATES: Final = {
    "BUILD": VmState.STARTING,
    "REBOOT": VmState.STARTING,
    "ACTIVE": VmState.RUNNING,
    "SHUTOFF": VmState.FAILED,
    "ERROR": VmState.FAILED,
    "DELETING": VmState.FAILED,
}


class PowerProvider:
    """One workspace."""

    def __init__(
        self, account: Mapping[str, str], secrets: Secrets, *, iam_url: str = IAM_URL
    ) -> None:
        crn = account.get("crn", "")
        parts = crn.split(":")
        workspace = parts[7] if len(parts) >= _CRN_PARTS_MIN else ""
        self._client = IbmClient(
            provider="ibmp",
            url=f"{account.get('url', '').rstrip('/')}/pcloud/v1/cloud-instances/{workspace}",
            secrets=secrets,
            secret=account.get("secret", ""),
            headers={"CRN": crn},
            iam_url=iam_url,
        )

    @translates_answers("ibmp")
    async def launch(self, order: Order) -> None:
        """Order an instance, unless one of that name exists."""
        check_parameters("ibmp", order, IBM_POWER)
        given = order.parameters
        if len(given["crn"].split(":")) < _CRN_PARTS_MIN:
            text = f"dynamic.….crn: '{given['crn']}' names no workspace"
            raise ProviderRefusedError("ibmp", "launch", order.name, text)
        body: dict[str, Any] = {
            "serverName": order.name,
            "imageID": given["image"],
            "sysType": given["system"],
            "keyPairName": given["key"],
            "networks": [{"networkID": given["network"]}],
            "processors": number_parameter(order, "cores", CORES),
            "memory": number_parameter(order, "memory", MEMORY_GB),
            "procType": "shared",
        }
        if given.get("user-data"):
            body["userData"] = base64.b64encode(given["user-data"].encode()).decode()
        if await self._get(order.name, "launch") is None:
            # 409: an earlier order of this name got through.
            await self._client.request("POST", INSTANCES, "launch", order.name, body=body)
        if given.get("disk"):
            await self._grow(order.name, int(given["disk"]))

    @translates_answers("ibmp")
    async def find(self, name: str) -> Vm | None:
        """Describe one instance."""
        instance = await self._get(name, "find")
        return _vm(instance) if instance is not None else None

    @translates_answers("ibmp")
    async def list_owned(self, owner: str) -> Sequence[Vm]:
        """List all instances whose name carries the mark of `owner`."""
        return [_vm(one) for one in await self._all(owner) if is_owned_by(_name(one), owner)]

    @translates_answers("ibmp")
    async def terminate(self, name: str) -> None:
        """Terminate an instance with its volumes, also while it is being built."""
        instance = await self._get(name, "terminate")
        if instance is not None:
            path = f"{INSTANCES}/{instance['pvmInstanceID']}"
            params = {"delete_data_volumes": "true"}
            await self._client.request("DELETE", path, "terminate", name, params=params)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _grow(self, name: str, gigabytes: int) -> None:
        """Enlarge the disk, which is as large as its image at first.

        Raises `ProviderBusyError` while the disk does not exist: the order is then repeated.
        """
        instance = await self._get(name, "launch")
        path = f"{INSTANCES}/{instance['pvmInstanceID']}/volumes" if instance is not None else ""
        _, page = await self._client.request("GET", path, "launch", name) if path else (0, {})
        volumes: list[dict[str, Any]] = page.get("volumes", [])
        boot = next((one for one in volumes if one.get("bootVolume")), None)
        if boot is None:
            raise ProviderBusyError("ibmp", "launch", name, "its disk is not there yet")
        if float(boot.get("size", 0)) >= gigabytes:
            return
        path, body = f"/volumes/{boot['volumeID']}", {"size": gigabytes}
        # The disk is locked while the instance is built. The response then looks like a refusal.
        try:
            status, _ = await self._client.request("PUT", path, "launch", name, body=body)
        except ProviderRefusedError as error:
            raise ProviderBusyError("ibmp", "launch", name, error.reason) from error
        if status in {CONFLICT, NOT_FOUND}:
            raise ProviderBusyError("ibmp", "launch", name, "its disk is locked")

    async def _all(self, name: str, action: str = "list") -> list[dict[str, Any]]:
        page = await self._client.read_page(INSTANCES, "pvmInstances", action, name)
        found: list[dict[str, Any]] = page["pvmInstances"]
        return found

    async def _get(self, name: str, action: str) -> dict[str, Any] | None:
        # The API has no filter by name.
        return next((one for one in await self._all(name, action) if _name(one) == name), None)


def _name(instance: Mapping[str, Any]) -> str:
    return str(instance.get("serverName", ""))


def _vm(instance: Mapping[str, Any]) -> Vm:
    networks = instance.get("networks") or instance.get("addresses") or []
    address = next(
        (
            str(found)
            for one in networks
            if (found := one.get("externalIP") or one.get("ipAddress"))
        ),
        "",
    )
    # The API documents no states. An unknown state counts as starting, which has a time-out.
    state = STATES.get(str(instance.get("status", "")).upper(), VmState.STARTING)
    return Vm(
        name=_name(instance),
        state=state,
        address=address if state is VmState.RUNNING else "",
        launched_at=parse_time(instance.get("creationDate")),
    )


KIND: Final = ProviderKind(open=PowerProvider, ssh_user="root", rules=IBM_POWER)
"""`type: ibmp`."""
