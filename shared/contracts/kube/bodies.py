"""The JSON bodies of Kubernetes objects, typed as far as every kind has the same fields.

`Body` is what an API server sends and takes. The contents of `spec`, `status` and `data` differ from
kind to kind and stay `dict[str, Any]`; `metadata` is the same for all.

A function that builds one annotates it: ``manifest: Body = {"apiVersion": …, "kind": …, "metadata": …}``.
Where JSON comes from somewhere else (a file, a store), `as_body` says once that it is a body. What a user
wrote and nobody has validated yet, such as a webhook's, is no `Body` but an `Object` of
`shared.contracts.kube.kinds`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NotRequired, TypedDict, cast

from shared.contracts.kube.numbers import whole_number


class OwnerReference(TypedDict):
    """An entry of `metadata.ownerReferences`."""

    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: NotRequired[bool]
    blockOwnerDeletion: NotRequired[bool]


class Metadata(TypedDict):
    """`metadata` of an object. What a server adds is absent from manifests that were not sent yet."""

    name: str
    namespace: NotRequired[str]
    """Absent for cluster-scoped kinds."""

    generateName: NotRequired[str]
    uid: NotRequired[str]
    resourceVersion: NotRequired[str]
    generation: NotRequired[int]
    creationTimestamp: NotRequired[str]
    deletionTimestamp: NotRequired[str]
    deletionGracePeriodSeconds: NotRequired[int]
    labels: NotRequired[dict[str, str]]
    annotations: NotRequired[dict[str, str]]
    finalizers: NotRequired[list[str]]
    ownerReferences: NotRequired[list[OwnerReference]]
    managedFields: NotRequired[list[Any]]


class Body(TypedDict):
    """A Kubernetes object as JSON. `spec` and the rest are absent where the kind has none."""

    apiVersion: str
    kind: str
    metadata: Metadata
    spec: NotRequired[dict[str, Any]]
    status: NotRequired[dict[str, Any]]
    data: NotRequired[dict[str, str]]
    """Of a ConfigMap, or of a Secret in base64."""

    stringData: NotRequired[dict[str, str]]
    type: NotRequired[str]
    """Of a Secret."""

    value: NotRequired[int]
    """Of a WorkloadPriorityClass or PriorityClass."""

    globalDefault: NotRequired[bool]
    """Of a PriorityClass."""

    preemptionPolicy: NotRequired[str]
    """Of a PriorityClass."""

    overhead: NotRequired[dict[str, Any]]
    """Of a RuntimeClass."""

    scheduling: NotRequired[dict[str, Any]]
    """Of a RuntimeClass."""

    involvedObject: NotRequired[dict[str, Any]]
    """Of an Event."""

    reason: NotRequired[str]
    """Of an Event."""

    message: NotRequired[str]
    """Of an Event."""

    count: NotRequired[int]
    """Of an Event."""

    rules: NotRequired[list[dict[str, Any]]]
    """Of a Role or ClusterRole."""

    webhooks: NotRequired[list[dict[str, Any]]]
    """Of a MutatingWebhookConfiguration or ValidatingWebhookConfiguration."""


def as_body(obj: Mapping[str, Any]) -> Body:
    """Return `obj` itself, as a `Body`. Checks nothing: for JSON that an API server once accepted."""
    return cast("Body", obj)


def map_at(value: object, *path: str) -> dict[str, Any]:
    """Return the map at `path`; an empty one if nothing is there, or something else than a map."""
    for step in path:
        if not isinstance(value, dict):
            return {}
        value = value.get(step)
    return value if isinstance(value, dict) else {}


def list_at(value: object, *path: str) -> list[Any]:
    """Return the list at `path`; an empty one if nothing is there, or something else than a list."""
    if path:
        *above, last = path
        value = map_at(value, *above).get(last)
    return value if isinstance(value, list) else []


def maps_at(value: object, *path: str) -> list[dict[str, Any]]:
    """Return the maps in the list at `path`; none if nothing is there, or something else than a list."""
    return [each for each in list_at(value, *path) if isinstance(each, dict)]


def owners_of(obj: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return `metadata.ownerReferences`; empty if the object or they are missing."""
    return maps_at(obj, "metadata", "ownerReferences")


def labels_of(obj: Mapping[str, Any] | None) -> dict[str, str]:
    """Return `metadata.labels`; empty if the object or they are missing."""
    return map_at(obj, "metadata", "labels")


def annotations_of(obj: Mapping[str, Any] | None) -> dict[str, str]:
    """Return `metadata.annotations`; empty if the object or they are missing."""
    return map_at(obj, "metadata", "annotations")


def spec_of(obj: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return `spec`; empty if the object or it is missing."""
    return map_at(obj, "spec")


def status_of(obj: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return `status`; empty if the object or it is missing."""
    return map_at(obj, "status")


def strings_in(value: object) -> Iterator[str]:
    """Yield every string in a JSON value; not the keys of objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from strings_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)


def version_of(obj: Body | None) -> int:
    """The resource version as a number that grows with each change (KEP-5504); -1 for None."""
    if obj is None:
        return -1
    return whole_number(str(obj["metadata"].get("resourceVersion", ""))) or 0


def pod_has_ended(pod: Body) -> bool:
    """Whether all containers of a pod have ended for good."""
    return status_of(pod).get("phase") in {"Succeeded", "Failed"}
