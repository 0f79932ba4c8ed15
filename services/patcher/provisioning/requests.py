"""Names and manifests of ProvisioningRequests and their PodTemplates, as Kueue makes them. Pure.

Facts from kubernetes-sigs/kueue@ff69552 pkg/controller/admissionchecks/provisioning.
"""

import copy
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shared.contracts.kube.bodies import (
    Body,
    Metadata,
    OwnerReference,
    annotations_of,
    as_body,
    spec_of,
    status_of,
)
from shared.contracts.kube.kinds import POD_TEMPLATE, PROVISIONING_REQUEST, WORKLOAD, Kind
from shared.contracts.kube.names import (
    CLASS_ANNOTATION,
    CONSUMED_ANNOTATION,
    MANAGED_LABEL,
    PROVISIONING_PREFIX,
)

ATTEMPTS_MAX: Final = 100
"""Attempts that are recognized by the hash of a long name."""

_NAME_MAX: Final = 252
_HASH_LENGTH: Final = 5
_SAME_PLACE: Final = ("resources", "nodeSelector", "tolerations", "affinity", "resourceClaims")
"""Fields of a pod beside its containers' requests that say where it can run."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedPodSet:
    """Pods that are requested together."""

    name: str
    """Of the first pod set of those that were merged."""

    template: Mapping[str, Any]
    assignment: Mapping[str, Any]
    """Entry of `status.admission.podSetAssignments`."""

    count: int


def request_name(workload: str, check: str, attempt: int) -> str:
    """Name of the ProvisioningRequest of an attempt: ``<workload>-<check>-<attempt>``."""
    return _limited(f"{workload}-{check}-{attempt}")


def attempt_of(request: str, workload: str, check: str) -> int | None:
    """The attempt that the name of a request names; None if it is not of this workload and check."""
    prefix = f"{workload}-{check}-"
    if request.startswith(prefix) and re.fullmatch("[1-9][0-9]{0,8}", request[len(prefix) :]):
        return int(request[len(prefix) :])
    # The end of a long name is cut off: only its hash tells the attempts apart.
    attempts = range(1, ATTEMPTS_MAX + 1)
    return next((n for n in attempts if request_name(workload, check, n) == request), None)


def template_name(request: str, pod_set: str) -> str:
    """Name of the PodTemplate of a pod set of a request."""
    return _limited(f"ppt-{request}-{pod_set}")


def _limited(name: str) -> str:
    if len(name) <= _NAME_MAX - _HASH_LENGTH:
        return name
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
    return f"{name[: _NAME_MAX - _HASH_LENGTH]}-{digest[:_HASH_LENGTH]}"


def requested_pod_sets(workload: Body, config: Mapping[str, Any]) -> list[RequestedPodSet]:
    """What to request for a workload that holds quota; empty if nothing is to be requested."""
    status = status_of(workload).get("admission") or {}
    assignments = {one.get("name"): one for one in status.get("podSetAssignments") or []}
    managed = set(config.get("managedResources") or ())
    policy = config.get("podSetMergePolicy")
    found: list[RequestedPodSet] = []
    for pod_set in spec_of(workload).get("podSets") or []:
        name, template = str(pod_set.get("name")), pod_set.get("template") or {}
        assignment = assignments.get(name)
        planned = int(pod_set.get("count", 1))
        if planned <= 0 or assignment is None or (managed and not _uses(template, managed)):
            continue
        count = int(assignment.get("count", planned))
        if count <= 0:
            continue
        same = (n for n, one in enumerate(found) if _may_merge(policy, one.template, template))
        if (at := next(same, None)) is not None:
            first = found[at]
            found[at] = RequestedPodSet(
                name=first.name,
                template=first.template,
                assignment=first.assignment,
                count=first.count + count,
            )
        else:
            found.append(
                RequestedPodSet(name=name, template=template, assignment=assignment, count=count)
            )
    return found


def _containers(template: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    pod = template.get("spec") or {}
    yield from pod.get("initContainers") or []
    yield from pod.get("containers") or []


def _uses(template: Mapping[str, Any], resources: Collection[str]) -> bool:
    for container in _containers(template):
        asked = container.get("resources") or {}
        if any(
            name in resources for part in ("requests", "limits") for name in asked.get(part) or ()
        ):
            return True
    return False


def _may_merge(policy: str | None, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    match policy:
        case "IdenticalPodTemplates":
            return one == other
        case "IdenticalWorkloadSchedulingRequirements":
            return _requirements(one) == _requirements(other)
        case _:
            return False


def _requirements(template: Mapping[str, Any]) -> list[Any]:
    pod = template.get("spec") or {}
    asked = [
        [(each.get("resources") or {}).get("requests") or {} for each in pod.get(part) or []]
        for part in ("containers", "initContainers")
    ]
    return [*asked, *(pod.get(field) or None for field in _SAME_PLACE)]


def is_as_configured(request: Body, config: Mapping[str, Any]) -> bool:
    """Whether the request has the class and all parameters of the configuration."""
    spec = spec_of(request)
    has = spec.get("parameters") or {}
    wanted = config.get("parameters") or {}
    return spec.get("provisioningClassName") == config.get("provisioningClassName") and all(
        has.get(key) == value for key, value in wanted.items()
    )


def owned_by(obj: Body, uid: str) -> bool:
    """Whether the object with this uid controls `obj`."""
    owners = obj["metadata"].get("ownerReferences") or []
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def owner_reference(kind: Kind, owner: Body) -> OwnerReference:
    """The reference of an object to the one that controls it."""
    metadata = owner["metadata"]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def _metadata(workload: Body, name: str) -> Metadata:
    return {
        "name": name,
        "namespace": workload["metadata"]["namespace"],
        "labels": {MANAGED_LABEL: "true"},
        "ownerReferences": [owner_reference(WORKLOAD, workload)],
    }


def request_object(
    workload: Body, name: str, config: Mapping[str, Any], pod_sets: Sequence[RequestedPodSet]
) -> Body:
    """The ProvisioningRequest of one attempt."""
    parameters = dict(config.get("parameters") or {})
    for key, value in annotations_of(workload).items():
        if key.startswith(PROVISIONING_PREFIX):
            parameters[key.removeprefix(PROVISIONING_PREFIX)] = value
    listed = [
        {"podTemplateRef": {"name": template_name(name, one.name)}, "count": one.count}
        for one in pod_sets
    ]
    return as_body(
        {
            "apiVersion": PROVISIONING_REQUEST.api_version,
            "kind": PROVISIONING_REQUEST.kind,
            "metadata": _metadata(workload, name),
            "spec": {
                "provisioningClassName": config.get("provisioningClassName"),
                "parameters": parameters,
                "podSets": listed,
            },
        }
    )


def template_object(
    workload: Body, name: str, pod_set: RequestedPodSet, flavors: Mapping[str, Body]
) -> Body:
    """The PodTemplate of a pod set: its pods as they will run, on the nodes of its flavors.

    It belongs to the Workload until the request exists. Raises `ValueError` if a flavor is not known.
    """
    template = copy.deepcopy(dict(pod_set.template))
    metadata, pod = template.setdefault("metadata", {}), template.setdefault("spec", {})
    metadata.pop("creationTimestamp", None)
    for flavor in dict.fromkeys((pod_set.assignment.get("flavors") or {}).values()):
        found = flavors.get(flavor)
        if found is None:
            raise ValueError(f"ResourceFlavor {flavor}: not found")
        spec = spec_of(found)
        for key, value in (spec.get("nodeLabels") or {}).items():
            present = (pod.get("nodeSelector") or {}).get(key, value)
            if present != value:
                where = f"pod set {pod_set.name}: nodeSelector[{key}]"
                raise ValueError(f"{where}: {present!r}: conflicts with {value!r} of {flavor}")
            pod["nodeSelector"] = {**(pod.get("nodeSelector") or {}), key: value}
        has = pod.get("tolerations") or []
        if more := [one for one in spec.get("tolerations") or [] if one not in has]:
            pod["tolerations"] = [*has, *more]
    parts: list[Json] = [pod, *(pod.get("initContainers") or ()), *(pod.get("containers") or ())]
    for part in parts:
        asked = part.get("resources") or {}
        if limits := asked.get("limits"):
            part["resources"] = {**asked, "requests": {**limits, **(asked.get("requests") or {})}}
    return as_body(
        {
            "apiVersion": POD_TEMPLATE.api_version,
            "kind": POD_TEMPLATE.kind,
            "metadata": _metadata(workload, name),
            "template": template,
        }
    )


def pod_set_updates(workload: Body, request: Body, config: Mapping[str, Any]) -> list[Json]:
    """What the pods get so that they run on what the request has provisioned."""
    name = request["metadata"]["name"]
    named = {
        template_name(name, str(one.get("name"))): str(one.get("name"))
        for one in spec_of(workload).get("podSets") or []
    }
    details = status_of(request).get("provisioningClassDetails") or {}
    selectors = (config.get("podSetUpdates") or {}).get("nodeSelector") or []
    updates: list[Json] = []
    for pod_set in spec_of(request).get("podSets") or []:
        template = str((pod_set.get("podTemplateRef") or {}).get("name"))
        if template not in named:
            continue
        update: Json = {
            "name": named[template],
            "annotations": {
                CONSUMED_ANNOTATION: name,
                CLASS_ANNOTATION: spec_of(request).get("provisioningClassName"),
            },
        }
        found = {
            str(one.get("key")): str(details[one.get("valueFromProvisioningClassDetail")])
            for one in selectors
            if one.get("valueFromProvisioningClassDetail") in details
        }
        if found:
            update["nodeSelector"] = found
        updates.append(update)
    return updates
