"""IBM Cloud over HTTP, as its published interface describes it: sign-in, VPC instances, Power instances.

Strict where the interface is: a body with a field that it does not know, or without one that it
requires, is answered with 400; a token that was not given out, with 401.
"""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

API_KEY = "canary-api-key"
WORKSPACE = "7a1c"
CRN = f"crn:v1:bluemix:public:power-iaas:wdc06:a/1:{WORKSPACE}::"

_VPC_FIELDS = {
    "name", "profile", "vpc", "zone", "keys", "image", "boot_volume_attachment",
    "primary_network_interface", "user_data",
}  # fmt: skip
_POWER_FIELDS = {
    "serverName", "imageID", "sysType", "keyPairName", "networks", "processors", "memory",
    "procType", "userData",
}  # fmt: skip

Json = dict[str, Any]


class IbmDouble:
    """Both clouds. `boots` asks how often until an instance runs; `refuse` is the next answer."""

    def __init__(self) -> None:
        self.url = ""
        self.instances: dict[str, Json] = {}
        self.servers: dict[str, Json] = {}
        self.floating: dict[str, Json] = {}
        self.boots = 1
        self.refuse: tuple[int, str] | None = None
        self.lose_answer = False
        self._numbers = itertools.count(1)

    @property
    def iam_url(self) -> str:
        return f"{self.url}/identity/token"

    def routes(self) -> list[web.RouteDef]:
        power = f"/pcloud/v1/cloud-instances/{WORKSPACE}/pvm-instances"
        return [
            web.post("/identity/token", self.sign_in),
            web.get("/v1/instances", self.list_vpc),
            web.post("/v1/instances", self.make_vpc),
            web.delete("/v1/instances/{id}", self.end_vpc),
            web.get("/v1/instances/{id}/network_interfaces/{nic}/floating_ips", self.list_ips),
            web.post("/v1/floating_ips", self.make_ip),
            web.delete("/v1/floating_ips/{id}", self.end_ip),
            web.get(power, self.list_power),
            web.post(power, self.make_power),
            web.delete(power + "/{id}", self.end_power),
            web.get(power + "/{id}/volumes", self.list_volumes),
            web.put(power.replace("pvm-instances", "volumes") + "/{id}", self.change_volume),
        ]

    async def sign_in(self, request: web.Request) -> web.Response:
        form = await request.post()
        if form.get("apikey") != API_KEY:
            return web.json_response({"errorCode": "BXNIM0415E"}, status=400)
        return web.json_response({"access_token": "token", "expires_in": 3600})

    def check(self, request: web.Request) -> None:
        if request.headers.get("Authorization") != "Bearer token":
            raise web.HTTPUnauthorized
        if request.path.startswith("/v1/") and "version" not in request.query:
            raise web.HTTPBadRequest(text="missing_version")
        if request.path.startswith("/pcloud/") and request.headers.get("CRN") != CRN:
            raise web.HTTPBadRequest(text="no CRN")
        if self.refuse is not None and request.method == "POST":
            (status, text), self.refuse = self.refuse, None
            raise _refusal(status, text)

    # --- VPC ---

    async def list_vpc(self, request: web.Request) -> web.Response:
        self.check(request)
        for one in self.instances.values():
            one["asked"] += 1
            if one["status"] == "pending" and one["asked"] > self.boots:
                one["status"] = "running"
                one["primary_network_interface"]["primary_ip"]["address"] = "10.1.0.9"
        gone = [key for key, one in self.instances.items() if one["status"] == "deleted"]
        for key in gone:
            del self.instances[key]
        name = request.query.get("name")
        found = [one for one in self.instances.values() if name in {None, one["name"]}]
        start, limit = int(request.query.get("start", 0)), int(request.query.get("limit", 50))
        page: Json = {"instances": found[start : start + limit]}
        if len(found) > start + limit:
            page["next"] = {"href": f"{self.url}/v1/instances?start={start + limit}&limit={limit}"}
        return web.json_response(page)

    async def make_vpc(self, request: web.Request) -> web.Response:
        self.check(request)
        body = await request.json()
        required = {"profile", "zone", "image", "primary_network_interface"}
        if not required <= body.keys() <= _VPC_FIELDS:
            raise web.HTTPBadRequest(text=f"unknown or missing: {body.keys() ^ _VPC_FIELDS}")
        if any(one["name"] == body["name"] for one in self.instances.values()):
            return web.json_response({"errors": [{"code": "not_unique"}]}, status=409)
        key = f"0717_{next(self._numbers)}"
        instance = {
            "id": key, "name": body["name"], "status": "pending", "asked": 0,
            "created_at": "2026-01-01T12:00:00Z", "vpc": body["vpc"],
            "primary_network_interface": {
                "id": f"nic-{key}", "name": body["primary_network_interface"]["name"],
                "primary_ip": {"address": "0.0.0.0"},
            },
        }  # fmt: skip
        self.instances[key] = instance
        if self.lose_answer:
            self.lose_answer = False
            raise web.HTTPInternalServerError
        return web.json_response(instance, status=201)

    async def end_vpc(self, request: web.Request) -> web.Response:
        self.check(request)
        instance = self.instances.get(request.match_info["id"])
        if instance is None:
            raise web.HTTPNotFound
        instance["status"] = "deleted"
        return web.Response(status=204)

    async def list_ips(self, request: web.Request) -> web.Response:
        self.check(request)
        nic = request.match_info["nic"]
        found = [one for one in self.floating.values() if one["target"]["id"] == nic]
        return web.json_response({"floating_ips": found})

    async def make_ip(self, request: web.Request) -> web.Response:
        self.check(request)
        body = await request.json()
        key = f"ip-{next(self._numbers)}"
        self.floating[key] = {"id": key, "address": f"150.0.0.{len(self.floating) + 1}", **body}
        return web.json_response(self.floating[key], status=201)

    async def end_ip(self, request: web.Request) -> web.Response:
        self.check(request)
        self.floating.pop(request.match_info["id"], None)
        return web.Response(status=204)

    # --- Power ---

    async def list_power(self, request: web.Request) -> web.Response:
        self.check(request)
        for one in self.servers.values():
            one["asked"] += 1
            if one["status"] == "BUILD" and one["asked"] > self.boots:
                one["status"] = "ACTIVE"
                one["networks"] = [{"ipAddress": "192.168.0.7", "externalIP": "160.0.0.7"}]
        self.servers = {k: one for k, one in self.servers.items() if one["status"] != "DELETED"}
        return web.json_response({"pvmInstances": list(self.servers.values())})

    async def make_power(self, request: web.Request) -> web.Response:
        self.check(request)
        body = await request.json()
        required = {"serverName", "imageID", "processors", "procType", "memory"}
        if not required <= body.keys() <= _POWER_FIELDS or len(body["serverName"]) > 47:
            raise web.HTTPBadRequest(text=f"unknown or missing: {body.keys() ^ _POWER_FIELDS}")
        if any(one["serverName"] == body["serverName"] for one in self.servers.values()):
            return web.json_response({"error": "name is taken"}, status=409)
        key = f"pvm-{next(self._numbers)}"
        self.servers[key] = {
            "pvmInstanceID": key, "serverName": body["serverName"], "status": "BUILD", "asked": 0,
            "creationDate": "2026-01-01T12:00:00.000Z", "networks": [],
        }  # fmt: skip
        if self.lose_answer:
            self.lose_answer = False
            raise web.HTTPInternalServerError
        return web.json_response([self.servers[key]], status=201)

    async def list_volumes(self, request: web.Request) -> web.Response:
        """The disk of a server appears while it is made."""
        self.check(request)
        server = self.servers.get(request.match_info["id"])
        if server is None:
            raise web.HTTPNotFound
        server["asked"] += 1
        there = server["asked"] > 1
        volume = {
            "volumeID": f"{server['pvmInstanceID']}-boot",
            "bootVolume": True,
            "size": server.get("disk", 20),
        }
        return web.json_response({"volumes": [volume] if there else []})

    async def change_volume(self, request: web.Request) -> web.Response:
        self.check(request)
        server = self.servers[request.match_info["id"].removesuffix("-boot")]
        if server["status"] == "BUILD":
            return web.json_response({"error": "the volume is locked"}, status=409)
        server["disk"] = (await request.json())["size"]
        return web.json_response({"size": server["disk"]})

    async def end_power(self, request: web.Request) -> web.Response:
        self.check(request)
        server = self.servers.get(request.match_info["id"])
        if server is None:
            raise web.HTTPNotFound
        server["status"] = "DELETED"
        return web.json_response({})


def _refusal(status: int, text: str) -> web.HTTPException:
    kinds: dict[int, type[web.HTTPException]] = {
        400: web.HTTPBadRequest,
        403: web.HTTPForbidden,
        429: web.HTTPTooManyRequests,
        500: web.HTTPInternalServerError,
    }
    return kinds[status](text=text)


@asynccontextmanager
async def ibm_double() -> AsyncIterator[IbmDouble]:
    double = IbmDouble()
    app = web.Application()
    app.add_routes(double.routes())
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    double.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield double
    finally:
        await runner.cleanup()
