"""Webhooks that the tests configure in a simulated cluster."""

import asyncio
from base64 import b64encode
from functools import cache
from typing import Any

import orjson
import trustme
from aiohttp import web

from services.simulator.cluster.api import Api
from services.simulator.cluster.kinds.registry import Obj
from tests.unit.simulator.builders import config_map, kind

GROUP = "admissionregistration.k8s.io"


@cache
def authority() -> trustme.CA:
    """One for all tests: making one takes a while."""
    return trustme.CA()


class Reviewer:
    """A webhook server that remembers what it was asked, and answers what the test says."""

    def __init__(self) -> None:
        self.asked: list[Obj] = []
        self.patches: dict[str, Any] = {}
        self.response: Obj = {"allowed": True}
        self.raw: bytes | None = None
        self.delay_seconds = 0.0
        self.authority = authority()
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        review = orjson.loads(await request.read())
        self.asked.append({**review["request"], "path": request.path})
        await asyncio.sleep(self.delay_seconds)
        if self.raw is not None:
            return web.Response(body=self.raw, content_type="application/json")
        response = {"uid": review["request"]["uid"], **self.response}
        if (patch := self.patches.get(request.path)) is not None:
            response |= {"patchType": "JSONPatch", "patch": b64encode(orjson.dumps(patch)).decode()}
        body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
        return web.Response(body=orjson.dumps({**body, "response": response}))

    @property
    def paths(self) -> list[str]:
        return [asked["path"] for asked in self.asked]


def hook(reviewer: Reviewer, path: str = "m", **members: Any) -> Obj:
    bundle = b64encode(reviewer.authority.cert_pem.bytes()).decode()
    rule = {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
    }
    return {
        "name": f"{path}.example.com",
        "clientConfig": {"url": f"{reviewer.url}/{path}", "caBundle": bundle},
        "rules": [{**rule, **members.pop("rule", {})}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **members,
    }


async def configure(cluster: Api, *hooks: Obj, name: str = "config", mutating: bool = True) -> None:
    plural = "mutatingwebhookconfigurations" if mutating else "validatingwebhookconfigurations"
    body = {"metadata": {"name": name}, "webhooks": list(hooks)}
    await cluster.create(kind(cluster, plural, GROUP), "v1", "", body)


async def create(cluster: Api, body: Obj | None = None, *, dry_run: bool = False) -> Obj:
    maps = kind(cluster, "configmaps")
    body = config_map() if body is None else body
    return (await cluster.create(maps, "v1", "default", body, dry_run=dry_run)).obj
