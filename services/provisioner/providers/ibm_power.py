"""Machines of IBM Power Virtual Server (ppc64le). Not run on the real cloud; see `ibm`."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from services.provisioner.config.credentials import Secrets
from services.provisioner.providers.ibm import (
    IAM_URL,
    IbmClient,
    is_ours,
    number,
    required,
    time_of,
)
from services.provisioner.providers.keys import IBM_POWER
from services.provisioner.providers.port import (
    Order,
    ProviderBusyError,
    ProviderRefusedError,
    Vm,
    VmState,
)
from services.provisioner.providers.registry import ProviderKind

__all__ = ["KIND", "PowerProvider"]

CORES: Final = 0.25
MEMORY_GB: Final = 2
DISK_GB_MIN: Final = 100
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
        self._crn = account.get("crn", "")
        parts = self._crn.split(":")
        workspace = parts[7] if len(parts) >= _CRN_PARTS_MIN else ""
        root = f"{account.get('url', '').rstrip('/')}/pcloud/v1/cloud-instances/{workspace}"
        self._path, self._volumes = f"{root}/pvm-instances", f"{root}/volumes"
        self._client = IbmClient(
            provider="ibmp", secrets=secrets, secret=account.get("secret", ""),
            headers={"CRN": self._crn}, iam_url=iam_url,
        )  # fmt: skip

    async def launch(self, order: Order) -> None:
        """Order an instance, unless that name is there."""
        given = required("ibmp", order, "crn", "network", "system", "image", "key")
        if len(given["crn"].split(":")) < _CRN_PARTS_MIN:
            text = f"dynamic.….crn: '{given['crn']}' names no workspace"
            raise ProviderRefusedError("ibmp", "launch", order.name, text)
        body: dict[str, Any] = {
            "serverName": order.name,
            "imageID": given["image"],
            "sysType": given["system"],
            "keyPairName": given["key"],
            "networks": [{"networkID": given["network"]}],
            "processors": number("ibmp", order, "cores", CORES),
            "memory": number("ibmp", order, "memory", MEMORY_GB),
            "procType": "shared",
        }
        disk = 0
        if order.parameters.get("disk"):
            disk = int(number("ibmp", order, "disk", DISK_GB_MIN, least=DISK_GB_MIN))
        if order.parameters.get("user-data"):
            body["userData"] = base64.b64encode(order.parameters["user-data"].encode()).decode()
        if await self._get(order.name, "launch") is None:
            # The service takes a name once; 409 says that an order of ours was before this one.
            await self._request("POST", "", "launch", order.name, body=body)
        if disk:
            await self._grow(order.name, disk)

    async def find(self, name: str) -> Vm | None:
        """Look at one instance."""
        instance = await self._get(name, "find")
        return _vm(instance) if instance is not None else None

    async def list_owned(self, owner: str) -> Sequence[Vm]:
        """Look at all instances whose name says that they are of `owner`."""
        return [_vm(one) for one in await self._all(owner) if is_ours(_name(one), owner)]

    async def terminate(self, name: str) -> None:
        """End an instance with its volumes. One that is still being made is ended as well."""
        instance = await self._get(name, "terminate")
        if instance is not None:
            path = f"/{instance['pvmInstanceID']}"
            params = {"delete_data_volumes": "true"}
            await self._request("DELETE", path, "terminate", name, params=params)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _grow(self, name: str, gigabytes: int) -> None:
        """The disk is as large as its image: it is made larger when it is there.

        Until then the order is not complete, and is repeated: `ProviderBusyError`.
        """
        instance = await self._get(name, "launch")
        path = f"/{instance['pvmInstanceID']}/volumes" if instance is not None else ""
        _, page = await self._request("GET", path, "launch", name) if path else (0, {})
        volumes: list[dict[str, Any]] = page.get("volumes", [])
        boot = next((one for one in volumes if one.get("bootVolume")), None)
        if boot is None:
            raise ProviderBusyError("ibmp", "launch", name, "its disk is not there yet")
        if float(boot.get("size", 0)) >= gigabytes:
            return
        url, body = f"{self._volumes}/{boot['volumeID']}", {"size": gigabytes}
        # While the instance is being made, its disk is locked: the answer looks like a refusal.
        try:
            status, _ = await self._client.request(
                "PUT", url, action="launch", name=name, body=body
            )
        except ProviderRefusedError as error:
            raise ProviderBusyError("ibmp", "launch", name, error.reason) from error
        if status in {CONFLICT, NOT_FOUND}:
            raise ProviderBusyError("ibmp", "launch", name, "its disk is locked")

    async def _all(self, name: str, action: str = "list") -> list[dict[str, Any]]:
        _, page = await self._request("GET", "", action, name)
        found: list[dict[str, Any]] = page.get("pvmInstances", [])
        return found

    async def _get(self, name: str, action: str) -> dict[str, Any] | None:
        # There is no filter: the list is what there is.
        return next((one for one in await self._all(name, action) if _name(one) == name), None)

    async def _request(
        self,
        method: str,
        path: str,
        action: str,
        name: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        return await self._client.request(
            method, self._path + path, action=action, name=name, params=params, body=body
        )


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
    # The interface lists no states: what we do not know may pass, and has its time-out.
    state = STATES.get(str(instance.get("status", "")).upper(), VmState.STARTING)
    return Vm(
        name=_name(instance),
        state=state,
        address=address if state is VmState.RUNNING else "",
        launched_at=time_of(instance.get("creationDate")),
    )


KIND: Final = ProviderKind(open=PowerProvider, ssh_user="root", keys=IBM_POWER)
"""`type: ibmp`."""
