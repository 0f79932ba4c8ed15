"""Admission webhooks: finds them in the cluster's configurations and calls them over HTTPS."""

import ssl
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from uuid import UUID

import aiohttp
import orjson
import structlog
from typing_extensions import override

from services.simulator.cluster.admission import AdmissionPlugin, AdmissionRequest
from services.simulator.cluster.api import Api
from services.simulator.cluster.conversion import convert
from services.simulator.cluster.errors import ApiError, bad_request, internal_error
from services.simulator.cluster.kinds.catalogue import NAMESPACES
from services.simulator.cluster.kinds.registry import Kind, Obj
from services.simulator.cluster.patches import json_patch
from services.simulator.cluster.selectors import label_object_selector
from services.simulator.http.match_conditions import match
from services.simulator.http.reviews import ADMINISTRATOR, requester

log = structlog.get_logger(__name__)

ServiceAddresses = Mapping[tuple[str, str], str]
"""Namespace and name of a Service to its base URL, such as ``https://127.0.0.1:9443``."""

GROUP: Final = "admissionregistration.k8s.io"
TIMEOUT_SECONDS_DEFAULT: Final = 10
ANSWER_BYTES_MAX: Final = 3 * 1024 * 1024
CONFIGURATION_GROUPS: Final = frozenset({GROUP})
"""Webhooks are never called for webhook configurations: a broken one could not be repaired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hook:
    """One webhook of one configuration."""

    configuration: str
    spec: Obj
    mutating: bool
    versions: dict[tuple[str | tuple[str, ...], ...], str | None] = field(default_factory=dict)
    """What is asked for to the version that its rules name."""

    @property
    def name(self) -> str:
        return str(self.spec.get("name", self.configuration))


class Webhooks:
    """Finds the webhooks that match a request, and calls them."""

    def __init__(self, api: Api, *, random: Random, services: ServiceAddresses) -> None:
        self._api = api
        self._random = random
        self._services = services
        self._session: aiohttp.ClientSession | None = None
        self._trust: dict[str, ssl.SSLContext] = {}
        """TLS contexts by caBundle; emptied when a configuration changes."""

        self._mutating = api.kinds.by_resource(GROUP, "mutatingwebhookconfigurations")
        self._validating = api.kinds.by_resource(GROUP, "validatingwebhookconfigurations")
        self._configured: list[_Configured] | None = None
        """One for each configuration; None after a change."""

        for kind in (self._mutating, self._validating):
            api.store.subscribe(kind, lambda _: self._on_configuration())

    def start(self) -> None:
        """Start to serve admission. Needs a running event loop."""
        self._session = aiohttp.ClientSession(auto_decompress=True)
        self._api.admission.dynamic = self.concerned

    async def stop(self) -> None:
        """Close all connections."""
        self._api.admission.dynamic = None
        if self._session is not None:
            await self._session.close()

    def concerned(self, request: AdmissionRequest) -> list[AdmissionPlugin]:
        """Return a plugin for each configuration with a webhook that matches the request."""
        if request.kind.group in CONFIGURATION_GROUPS:
            return []
        if self._configured is None:
            self._configured = self._read_configurations()
        return [*self._configured]

    def _on_configuration(self) -> None:
        self._trust.clear()
        self._configured = None

    def _read_configurations(self) -> list["_Configured"]:
        found = []
        for kind in (self._mutating, self._validating):
            for stored in self._api.store.objects(kind):
                mutating = kind is self._mutating
                hooks = [
                    _Hook(configuration=stored.name, spec=spec, mutating=mutating)
                    for spec in stored.obj.get("webhooks") or ()
                ]
                if hooks:
                    found.append(_Configured(self, stored.name, hooks))
        return found

    # --- one call ------------------------------------------------------------------------------

    def version_for(self, hook: _Hook, request: AdmissionRequest) -> str | None:
        """Return the API version that the webhook expects, or None if its rules do not match."""
        kind = request.kind
        asked = (
            *(kind.group, kind.plural, kind.versions),
            *(request.version, request.subresource, request.operation),
        )
        if asked not in hook.versions:
            hook.versions[asked] = _version_for(hook, request)
        version = hook.versions[asked]
        return version if version is not None and self._selected(hook, request) else None

    def _selected(self, hook: _Hook, request: AdmissionRequest) -> bool:
        if request.kind.namespaced and (wanted := hook.spec.get("namespaceSelector")):
            space = self._api.store.get(NAMESPACES, "", request.namespace)
            if space is None or not label_object_selector(wanted)(space.obj):
                return False
        selects = label_object_selector(hook.spec.get("objectSelector"))
        seen = [obj for obj in (request.obj, request.old) if obj is not None]
        return any(selects(obj) for obj in seen)

    async def ask(self, hook: _Hook, request: AdmissionRequest, version: str) -> Obj | None:
        """Call one webhook; return the object that it wants. Raises `ApiError` if it refuses."""
        if request.dry_run and hook.spec.get("sideEffects") not in {"None", "NoneOnDryRun"}:
            raise bad_request(f'admission webhook "{hook.name}" does not support dry run')
        review = self._review(request, version)
        try:
            if not match(hook.spec.get("matchConditions") or (), review["request"]):
                return request.obj
            answer = await self._call(hook, review)
            response = _response(answer, review["request"]["uid"])
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            why = f'failed calling webhook "{hook.name}": {_said(hook, error)}'
            if hook.spec.get("failurePolicy", "Fail") == "Ignore":
                log.warning("a webhook failed and is ignored", webhook=hook.name, error=why)
                return request.obj
            raise internal_error(why) from error
        if not response.get("allowed"):
            raise _denial(hook, response)
        if not hook.mutating or request.obj is None or not response.get("patch"):
            return request.obj
        return self._patched(hook, request, version, response)

    def _patched(self, hook: _Hook, request: AdmissionRequest, version: str, response: Obj) -> Obj:
        assert request.obj is not None, "a patch of nothing"
        if response.get("patchType") != "JSONPatch":
            raise internal_error(
                f'admission webhook "{hook.name}" returned a patch of type '
                f"{response.get('patchType')!r}, only JSONPatch is known"
            )
        try:
            patch = orjson.loads(b64decode(response["patch"], validate=True))
            seen = convert(request.kind, request.obj, version)
            patched: Obj = json_patch(seen, patch)
        except (Base64Error, TypeError, orjson.JSONDecodeError, ApiError) as error:
            raise internal_error(
                f'admission webhook "{hook.name}" returned a patch that does not apply: {error}'
            ) from error
        return convert(request.kind, patched, request.version)

    def _review(self, request: AdmissionRequest, version: str) -> dict[str, Any]:
        kind = request.kind
        gvk = {"group": kind.group, "version": version, "kind": kind.kind}
        gvr = {"group": kind.group, "version": version, "resource": kind.plural}
        body: dict[str, Any] = {
            "uid": str(UUID(int=self._random.getrandbits(128), version=4)),
            "kind": gvk,
            "resource": gvr,
            "requestKind": {**gvk, "version": request.version},
            "requestResource": {**gvr, "version": request.version},
            "operation": request.operation,
            "userInfo": _user_info(requester.get()),
            "object": _as(kind, request.obj, version),
            "oldObject": _as(kind, request.old, version),
            "dryRun": request.dry_run,
            "options": None,
        }
        if request.name:
            body["name"] = request.name
        if request.namespace:
            body["namespace"] = request.namespace
        if request.subresource:
            body["subResource"] = body["requestSubResource"] = request.subresource
        return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": body}

    async def _call(self, hook: _Hook, review: Obj) -> Any:
        if self._session is None:
            raise OSError("the simulator is not started")
        url, server_name = self._address(hook)
        seconds = int(hook.spec.get("timeoutSeconds") or TIMEOUT_SECONDS_DEFAULT)
        async with self._session.post(
            url,
            data=orjson.dumps(review),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            ssl=self._context(hook),
            server_hostname=server_name,
            params={"timeout": f"{seconds}s"},
            timeout=aiohttp.ClientTimeout(total=seconds),
        ) as answer:
            raw = await answer.content.read(ANSWER_BYTES_MAX)
            if answer.status >= 400:
                text = raw[:256].decode(errors="replace")
                raise ValueError(f"an error on the server ({text!r}), status {answer.status}")
            return orjson.loads(raw)

    def _address(self, hook: _Hook) -> tuple[str, str | None]:
        """Return the URL, and the server name for TLS if that differs from the URL's host."""
        client = hook.spec.get("clientConfig") or {}
        if url := client.get("url"):
            return str(url), None
        service = client.get("service") or {}
        key = (str(service.get("namespace")), str(service.get("name")))
        base = self._services.get(key)
        if base is None:
            raise ValueError(f'service "{key[1]}" not found in namespace {key[0]}')
        path = str(service.get("path", "")).lstrip("/")
        return f"{base.rstrip('/')}/{path}", f"{key[1]}.{key[0]}.svc"

    def _context(self, hook: _Hook) -> ssl.SSLContext:
        bundle = str((hook.spec.get("clientConfig") or {}).get("caBundle") or "")
        context = self._trust.get(bundle)
        if context is None:
            text = b64decode(bundle, validate=True).decode("ascii") if bundle else None
            context = self._trust[bundle] = ssl.create_default_context(cadata=text)
        return context


class _Configured(AdmissionPlugin):
    """The matching webhooks of one configuration, in its order."""

    def __init__(self, webhooks: Webhooks, name: str, hooks: list[_Hook]) -> None:
        self._name = name
        self._webhooks = webhooks
        self._hooks = hooks

    @property
    @override
    def name(self) -> str:
        return self._name

    def _asked(self, request: AdmissionRequest, *, mutating: bool) -> Iterator[tuple[_Hook, str]]:
        for hook in self._hooks:
            if hook.mutating is mutating:
                version = self._webhooks.version_for(hook, request)
                if version is not None:
                    yield hook, version

    @override
    async def mutate(self, request: AdmissionRequest) -> Obj | None:
        for hook, version in self._asked(request, mutating=True):
            request.obj = await self._webhooks.ask(hook, request, version)
        return request.obj

    @override
    async def validate(self, request: AdmissionRequest) -> None:
        for hook, version in self._asked(request, mutating=False):
            await self._webhooks.ask(hook, request, version)


def _user_info(name: str) -> Obj:
    groups = ["system:masters"] if name == ADMINISTRATOR else ["system:serviceaccounts"]
    return {"username": name, "groups": groups}


def _as(kind: Kind, obj: Obj | None, version: str) -> Obj | None:
    return None if obj is None else convert(kind, obj, version)


def _version_for(hook: _Hook, request: AdmissionRequest) -> str | None:
    """The version in which the rules of a webhook name what is asked for; None if they do not."""
    exact = hook.spec.get("matchPolicy", "Equivalent") == "Exact"
    for version in (request.version, *(() if exact else request.kind.versions)):
        if any(_matches(rule, request, version) for rule in hook.spec.get("rules") or ()):
            return version
    return None


def _matches(rule: Obj, request: AdmissionRequest, version: str) -> bool:
    kind = request.kind
    resource = kind.plural + (f"/{request.subresource}" if request.subresource else "")
    resources = rule.get("resources") or []
    wildcards = {"*/*", resource, f"{kind.plural}/*"}
    wildcards |= {"*"} if not request.subresource else {f"*/{request.subresource}"}
    scope = rule.get("scope", "*")
    return (
        bool({"*", request.operation} & set(rule.get("operations") or ()))
        and bool({"*", kind.group} & set(rule.get("apiGroups") or ()))
        and bool({"*", version} & set(rule.get("apiVersions") or ()))
        and bool(wildcards & set(resources))
        and scope in {"*", "Namespaced" if kind.namespaced else "Cluster"}
    )


def _response(answer: Any, uid: str) -> Obj:
    """Return the response of a review. Raises `ValueError` if the body is not one."""
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        raise ValueError("expected response.uid, got no response")  # noqa: TRY004 - bad data
    if response.get("uid") != uid:
        raise ValueError(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    return response


def _said(hook: _Hook, error: Exception) -> str:
    if isinstance(error, TimeoutError):
        seconds = hook.spec.get("timeoutSeconds") or TIMEOUT_SECONDS_DEFAULT
        return f"context deadline exceeded after {seconds}s"
    return str(error) or type(error).__name__


def _denial(hook: _Hook, response: Obj) -> ApiError:
    """Return the webhook's refusal as the API server words it; 403 unless the webhook gives a code."""
    status = response.get("status") or {}
    text = f'admission webhook "{hook.name}" denied the request'
    if message := status.get("message"):
        text += f": {message}"
    elif reason := status.get("reason"):
        text += f": {reason}"
    else:
        text += " without explanation"
    code = status.get("code")
    if not isinstance(code, int) or code < 400:
        return ApiError(403, str(status.get("reason") or "Forbidden"), text)
    return ApiError(code, str(status.get("reason") or ""), text)
