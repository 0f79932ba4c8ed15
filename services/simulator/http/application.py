"""The ASGI application: routes requests to the API and encodes its results."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import datetime
from typing import Any, Final

import orjson
import structlog
import yaml

from services.simulator.cluster.api import Api, DeleteOptions, PatchType
from services.simulator.cluster.errors import (
    ApiError,
    bad_request,
    internal_error,
    method_not_allowed,
    too_large,
    unsupported_media_type,
)
from services.simulator.cluster.kinds.registry import Kind
from services.simulator.cluster.kinds.tables import table
from services.simulator.cluster.selectors import select
from services.simulator.cluster.storage.listing import Lists
from services.simulator.cluster.storage.stored import Stored
from services.simulator.http import discovery, openapi, reviews, watches
from services.simulator.http.metrics import RequestCounter
from services.simulator.http.protobuf import PROTOBUF, decode_protobuf
from services.simulator.http.requests import (
    Query,
    Shape,
    Target,
    accepted_shape,
    parse_query,
    parse_target,
    path_not_found,
)

log = structlog.get_logger(__name__)

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY_BYTES_MAX: Final = 3 * 1024 * 1024
"""The API server's limit for a request body."""

BODY_BYTES_DRAINED_MAX: Final = 32 * 1024 * 1024
"""A larger body is read to its end so that the client gets the 413, but never beyond this limit."""

Fault = Callable[[str, str], ApiError | None]
"""Method and path of a request to the error to answer, or None."""

PATCH_TYPES: Final[Mapping[str, PatchType]] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
}
MEDIA_TYPES: Final = (
    "the body of the request was in an unknown format - accepted media types include: "
)
REVIEWS: Final = {
    reviews.IDENTITY_PATH: reviews.token_review,
    reviews.ACCESS_PATH: reviews.access_review,
}
JSON: Final = b"application/json"
TEXT: Final = b"text/plain; charset=utf-8"
OPENAPI_V2_PROTOBUF: Final = "com.github.proto-openapi.spec.v2"


class _Answer:
    __slots__ = ("body", "code", "media_type", "retry_after_seconds", "warnings")

    def __init__(self, body: bytes, code: int = 200, media_type: bytes = JSON) -> None:
        self.body = body
        self.code = code
        self.media_type = media_type
        self.retry_after_seconds: int | None = None
        self.warnings: tuple[str, ...] = ()


class _Request:
    """One HTTP request, its body still unread."""

    def __init__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        raw = scope.get("raw_path") or self.path.encode()
        self.raw_path: str = raw.split(b"?")[0].decode("latin-1")
        self.query: Query = parse_query(scope["query_string"])
        self.headers: dict[str, str] = {
            name.decode(): value.decode("latin-1") for name, value in scope["headers"]
        }
        self.receive = receive
        self.send = send

    async def body(self) -> bytes:
        """Read the body. Raises 413 if it is larger than the limit."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise bad_request("the client went away before its request was complete")
            part = message.get("body", b"")
            size += len(part)
            if size <= BODY_BYTES_MAX:
                parts.append(part)
            elif size > BODY_BYTES_DRAINED_MAX:
                break
            if not message.get("more_body", False):
                break
        if size > BODY_BYTES_MAX:
            raise too_large(f"Request entity too large: limit is {BODY_BYTES_MAX}")
        return b"".join(parts)

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").split(";")[0].strip().lower()

    @property
    def dry_run(self) -> bool:
        asked = self.query.text("dryRun")
        if asked not in {"", "All"}:
            raise bad_request(f'dryRun: Unsupported value: "{asked}": supported values: "All"')
        return asked == "All"

    @property
    def shape(self) -> Shape:
        return accepted_shape(self.headers.get("accept", ""))


class Application:
    """Serves one `Api` over HTTP. Its only state are open watches and unfinished lists."""

    def __init__(self, api: Api, *, now: Callable[[], datetime]) -> None:
        self._api = api
        self._now = now
        self._lists = Lists(api.store)
        self._watches = watches.Watches(api, now=now)
        self._requests = RequestCounter()
        self.fault: Fault | None = None
        """Called before each request; the error that it returns is the answer. For fault injection."""

    def open(self) -> None:
        """Accept watches (again)."""
        self._watches.open()

    def close(self) -> None:
        """End all watches, so that the server can stop."""
        self._watches.close()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            return
        request = _Request(scope, receive, send)
        reviews.requester.set(reviews.user_of(request.headers.get("authorization", "")))
        try:
            answer = await self._answer(request)
        except ApiError as error:
            answer = _Answer(orjson.dumps(error.status()), error.code)
            answer.retry_after_seconds = error.retry_after_seconds
        except Exception:
            log.exception(
                "a request to the simulator failed", method=request.method, path=request.path
            )
            failure = internal_error("the simulator failed; its log says why")
            answer = _Answer(orjson.dumps(failure.status()), failure.code)
        if answer is not None:
            await _send(send, answer)

    async def _answer(self, request: _Request) -> _Answer | None:
        if self.fault is not None and (fault := self.fault(request.method, request.path)):
            raise fault
        if (fixed := self._fixed(request)) is not None:
            return fixed
        if request.method == "POST" and (review := REVIEWS.get(request.path)) is not None:
            asked = _decode(await request.body(), request.media_type)
            return _Answer(orjson.dumps(review(self._api, asked)), 201)
        target = parse_target(self._api.kinds, request.raw_path)
        code = 500
        try:
            answer = await self._targeted(request, target)
            code = 200 if answer is None else answer.code
        except ApiError as error:
            code = error.code
            raise
        finally:
            self._requests.answered(request.method, request.query, target, code)
        return answer

    async def _targeted(self, request: _Request, target: Target) -> _Answer | None:
        match request.method:
            case "GET":
                return await self._read(request, target)
            case "POST" if not target.name:
                return await self._create(request, target)
            case "PUT" if target.name:
                return await self._update(request, target)
            case "PATCH" if target.name:
                return await self._patch(request, target)
            case "DELETE" if target.name and not target.subresource:
                return await self._delete(request, target)
            case "DELETE" if not target.name:
                return await self._delete_collection(request, target)
            case _:
                raise method_not_allowed(
                    "the server does not allow this method on the requested resource"
                )

    def _fixed(self, request: _Request) -> _Answer | None:
        """Answer fixed paths: health, version, discovery, OpenAPI."""
        parts = request.path.strip("/").split("/")
        kinds = self._api.kinds
        found: dict[str, Any] | None
        match parts:
            case ["healthz" | "readyz" | "livez", *_]:
                return _Answer(b"ok", media_type=TEXT)
            case ["metrics"]:
                return _Answer(self._requests.text(), media_type=TEXT)
            case ["version"]:
                found = discovery.VERSION
            case ["api"]:
                found = discovery.versions()
            case ["apis"]:
                found = discovery.groups(kinds)
            case ["api", version]:
                found = discovery.resources(kinds, "", version)
            case ["apis", group]:
                listed = discovery.groups(kinds)["groups"]
                found = next((entry for entry in listed if entry["name"] == group), None)
                if found is not None:
                    found = {"kind": "APIGroup", "apiVersion": "v1", **found}
            case ["apis", group, version]:
                found = discovery.resources(kinds, group, version)
            case ["openapi", "v2"]:
                return self._openapi_v2(request)
            case ["openapi", "v3"]:
                found = openapi.openapi_index(kinds)
            case ["openapi", "v3", "api", version]:
                found = openapi.openapi_group_version(kinds, "", version)
            case ["openapi", "v3", "apis", group, version]:
                found = openapi.openapi_group_version(kinds, group, version)
            case _:
                return None
        if found is None:
            raise path_not_found()
        return _Answer(orjson.dumps(found))

    @staticmethod
    def _openapi_v2(request: _Request) -> _Answer:
        # An empty protobuf message is a document without definitions: kubectl then uses /openapi/v3.
        if OPENAPI_V2_PROTOBUF in request.headers.get("accept", ""):
            return _Answer(b"", media_type=b"application/octet-stream")
        return _Answer(orjson.dumps(openapi.EMPTY_V2))

    # --- reading -------------------------------------------------------------------------------

    async def _read(self, request: _Request, target: Target) -> _Answer | None:
        query = request.query
        if not target.name and query.flag("watch"):
            await self._watch(request, target)
            return None
        if target.name:
            stored = self._api.get(target.kind, target.namespace or "", target.name)
            return self._object(request, target, stored)
        selector = select(target.kind, query.text("labelSelector"), query.text("fieldSelector"))
        page = self._lists.page(
            target.kind,
            target.namespace,
            selector,
            limit=query.number("limit") or 0,
            token=query.text("continue"),
        )
        metadata: dict[str, Any] = {"resourceVersion": str(page.version)}
        if page.next_token:
            metadata["continue"] = page.next_token
            if selector is None:
                metadata["remainingItemCount"] = page.remaining
        shape = request.shape
        if shape == "table":
            return self._table(request, target, page.items, metadata)
        if shape == "partial":
            return _Answer(_partial_list(page.items, metadata))
        return _Answer(_list_body(target, page.items, metadata))

    def _table(
        self, request: _Request, target: Target, items: list[Stored], metadata: dict[str, Any]
    ) -> _Answer:
        # Printer columns are written for the storage version.
        objects = (stored.obj for stored in items)
        include = request.query.text("includeObject")
        made = table(target.kind, objects, now=self._now(), metadata=metadata, include=include)
        return _Answer(orjson.dumps(made))

    def _object(
        self,
        request: _Request,
        target: Target,
        stored: Stored,
        code: int = 200,
        *,
        warnings: tuple[str, ...] = (),
    ) -> _Answer:
        answer = self._shaped(request, target, stored, code)
        answer.warnings = warnings
        return answer

    def _shaped(self, request: _Request, target: Target, stored: Stored, code: int) -> _Answer:
        shape = request.shape
        if shape == "table":
            metadata = {"resourceVersion": str(stored.version)}
            return self._table(request, target, [stored], metadata)
        if shape == "partial":
            return _Answer(stored.partial(), code)
        return _Answer(stored.raw(target.version), code)

    async def _watch(self, request: _Request, target: Target) -> None:
        query = request.query
        asked = watches.WatchRequest(
            kind=target.kind,
            version=target.version,
            namespace=target.namespace,
            selector=select(target.kind, query.text("labelSelector"), query.text("fieldSelector")),
            since=query.text("resourceVersion"),
            bookmarks=query.flag("allowWatchBookmarks"),
            initial_events=query.flag("sendInitialEvents"),
            timeout_seconds=query.number("timeoutSeconds"),
            shape=request.shape,
            include=query.text("includeObject"),
        )
        await self._watches.serve(asked, request.receive, request.send)

    # --- writing -------------------------------------------------------------------------------

    async def _create(self, request: _Request, target: Target) -> _Answer:
        kind = target.kind
        if kind.namespaced and target.namespace is None:
            raise method_not_allowed(
                "the server does not allow this method on the requested resource"
            )
        body = _decode(await request.body(), request.media_type)
        warnings = self._checked(request, target, body)
        stored = await self._api.create(
            kind, target.version, target.namespace or "", body, dry_run=request.dry_run
        )
        return self._object(request, target, stored, 201, warnings=warnings)

    @staticmethod
    def _checked(request: _Request, target: Target, body: Any) -> tuple[str, ...]:
        if target.subresource or request.media_type == PROTOBUF:
            return ()
        asked = request.query.text("fieldValidation")
        return openapi.field_warnings(target.kind, target.version, body, asked)

    async def _update(self, request: _Request, target: Target) -> _Answer:
        body = _decode(await request.body(), request.media_type)
        if target.subresource == "finalize":
            self._api.finalize_namespace(target.name)
            return _Answer(orjson.dumps(body))
        warnings = self._checked(request, target, body)
        stored = await self._api.update(
            target.kind,
            target.version,
            target.namespace or "",
            target.name,
            body,
            subresource=target.subresource,
            dry_run=request.dry_run,
        )
        return self._object(request, target, stored, warnings=warnings)

    async def _patch(self, request: _Request, target: Target) -> _Answer:
        patch_type = PATCH_TYPES.get(request.media_type)
        if patch_type is None:
            raise unsupported_media_type(MEDIA_TYPES + ", ".join(PATCH_TYPES))
        patch = _decode(await request.body(), "application/json")
        warnings = self._checked(request, target, patch)
        stored = await self._api.patch(
            target.kind,
            target.version,
            target.namespace or "",
            target.name,
            patch,
            patch_type,
            subresource=target.subresource,
            dry_run=request.dry_run,
        )
        return self._object(request, target, stored, warnings=warnings)

    async def _delete(self, request: _Request, target: Target) -> _Answer:
        options = await self._delete_options(request)
        stored, gone = await self._api.delete(
            target.kind, target.namespace or "", target.name, options
        )
        if not gone:
            return _Answer(stored.raw(target.version))
        return _Answer(orjson.dumps(_deleted(target.kind, stored)))

    async def _delete_options(self, request: _Request) -> DeleteOptions:
        raw, query = await request.body(), request.query
        body = _decode(raw, request.media_type) if raw else {}
        if not isinstance(body, dict):
            raise bad_request("the body of a deletion must be DeleteOptions")
        preconditions = body.get("preconditions") or {}
        asked = body.get("propagationPolicy") or query.text("propagationPolicy")
        if body.get("orphanDependents") is True:
            asked = "Orphan"
        grace = body.get("gracePeriodSeconds", query.number("gracePeriodSeconds"))
        return DeleteOptions(
            uid=preconditions.get("uid"),
            resource_version=preconditions.get("resourceVersion"),
            propagation=asked or "Background",
            grace_seconds=grace,
            dry_run=request.dry_run or body.get("dryRun") == ["All"],
        )

    async def _delete_collection(self, request: _Request, target: Target) -> _Answer:
        query, kind = request.query, target.kind
        if kind.namespaced and target.namespace is None:
            raise method_not_allowed(
                "the server does not allow this method on the requested resource"
            )
        selector = select(kind, query.text("labelSelector"), query.text("fieldSelector"))
        options = await self._delete_options(request)
        page = self._lists.page(kind, target.namespace, selector)
        for stored in page.items:
            if self._api.store.by_uid(stored.uid) is not None:
                await self._api.delete(kind, stored.namespace, stored.name, options)
        return _Answer(_list_body(target, page.items, {"resourceVersion": str(page.version)}))


def _decode(raw: bytes, media_type: str) -> Any:
    if media_type in {"application/json", "", "application/x-www-form-urlencoded"}:
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error
    if media_type in {"application/yaml", "application/x-yaml", "text/yaml"}:
        try:
            return yaml.load(raw, yaml.CSafeLoader)
        except yaml.YAMLError as error:
            raise bad_request(f"error converting YAML to JSON: {error}") from error
    if media_type == PROTOBUF:
        return decode_protobuf(raw)
    raise unsupported_media_type(MEDIA_TYPES + "application/json, application/yaml")


def _list_body(target: Target, items: list[Stored], metadata: dict[str, Any]) -> bytes:
    kind, version = target.kind, target.version
    api_version = kind.api_version(version)
    head = orjson.dumps(
        {"kind": f"{kind.kind}List", "apiVersion": api_version, "metadata": metadata}
    )
    raws = [stored.raw(version) for stored in items]
    if not kind.custom:
        # A typed API server omits both in the entries of a list; clients must not rely on them.
        prefix = orjson.dumps({"apiVersion": api_version, "kind": kind.kind})[:-1] + b","
        raws = [b"{" + raw.removeprefix(prefix) if raw.startswith(prefix) else raw for raw in raws]
    return head[:-1] + b',"items":[' + b",".join(raws) + b"]}"


def _partial_list(items: list[Stored], metadata: dict[str, Any]) -> bytes:
    head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
    raws = (stored.partial() for stored in items)
    return (
        orjson.dumps({**head, "metadata": metadata})[:-1] + b',"items":[' + b",".join(raws) + b"]}"
    )


def _deleted(kind: Kind, stored: Stored) -> dict[str, Any]:
    details = {"name": stored.name, "kind": kind.plural, "uid": stored.uid}
    if kind.group:
        details["group"] = kind.group
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


async def _send(send: Send, answer: _Answer) -> None:
    headers = [
        (b"content-type", answer.media_type),
        (b"content-length", b"%d" % len(answer.body)),
    ]
    headers += [(b"warning", openapi.warning_header(text)) for text in answer.warnings]
    if answer.retry_after_seconds is not None:
        headers.append((b"retry-after", b"%d" % answer.retry_after_seconds))
    await send({"type": "http.response.start", "status": answer.code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
