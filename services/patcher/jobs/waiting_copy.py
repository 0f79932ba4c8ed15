"""The copy that waits in the place of a job that is ended. Pure.

A tenant may write labels and annotations of a job that runs. What they write there must not let the API
server refuse the copy: then the job could not be ended, and whoever preempted it would wait forever. Nor
may the copy ask for less than the job was admitted with.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from services.patcher.cluster.patches import JsonPatch
from shared.contracts.coscheduling import CoscheduleError, mode_of
from shared.contracts.kube import names
from shared.contracts.kube.bodies import Body, annotations_of, labels_of, spec_of
from shared.contracts.kube.kinds import OUR_GROUP
from shared.contracts.kube.quantities import QuantityError, amount
from shared.integrations import Integration
from shared.integrations.pointers import tokens, written

NAME_MAX: Final = 63
"""Length of a label value: controllers put names of jobs into labels."""

_HASH_LENGTH: Final = 5
_OUR_PREFIX: Final = f"{OUR_GROUP}/"
_NEEDED: Final = (names.QUEUE, names.PRIORITY_CLASS_LABEL)
"""Labels of a bare copy."""


def copy_of(
    job: Body,
    integration: Integration,
    workload: Body | None = None,
    *,
    attempt: int = 0,
    bare: bool = False,
) -> Body:
    """The copy to create: labels, annotations, owners and spec of `job`, suspended, with its origin.

    `workload` says what the job was admitted with; None: only the job says it. `attempt` counts names that
    others have taken. A `bare` copy has nothing that its tenant may have written, but queue and priority.
    """
    metadata, annotations = job["metadata"], annotations_of(job)
    first = annotations.get(names.RECREATED_FIRST) or metadata["name"]
    number = _recreations(annotations) + 1
    kept = {} if bare else dict(_kept(job, integration))
    labels = {
        key: value
        for key, value in labels_of(job).items()
        if not key.startswith(integration.forget) and (not bare or key in _NEEDED)
    }
    copy: Body = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "metadata": {
            "name": _name(first, number, metadata["uid"], attempt),
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": {
                **kept,
                **_requests(annotations, integration, workload),
                # Suspended by us, not paused by its user.
                names.USER_PENDING: "false",
                names.RECREATED_FROM: _origin(job),
                names.RECREATED_FIRST: first,
                names.RECREATIONS: str(number),
            },
        },
        "spec": job["spec"],
    }
    if not bare and (owners := metadata.get("ownerReferences")):
        copy["metadata"]["ownerReferences"] = owners
    return applied(copy, integration.hold(job))


def applied(obj: Body, operations: JsonPatch) -> Body:
    """The object after these operations, without their tests."""
    for operation in operations:
        if operation["op"] != "test":
            obj = written(obj, tokens(operation["path"]), operation["value"])
    return obj


def _origin(job: Body) -> str:
    """What the copy of a job names as its origin."""
    metadata = job["metadata"]
    return f"{metadata['name']}/{metadata['uid']}"


def is_copy_of(copy: Body, job: Body) -> bool:
    """Whether `copy` was created in the place of `job`."""
    return annotations_of(copy).get(names.RECREATED_FROM) == _origin(job)


def _kept(job: Body, integration: Integration) -> Iterator[tuple[str, str]]:
    """Yield the annotations that a copy takes over as they are."""
    not_copied = (_OUR_PREFIX, names.LAST_APPLIED, *integration.forget, *integration.asked_by)
    for key, value in annotations_of(job).items():
        if not key.startswith(not_copied):
            yield key, value
    try:
        mode = mode_of(job)
    except CoscheduleError:
        return  # Written after it was admitted: the webhook lets nobody create that.
    if mode is not None:
        yield names.COSCHEDULE, mode


def _requests(
    annotations: Mapping[str, str], integration: Integration, workload: Body | None
) -> dict[str, str]:
    """What the job asks for by annotations: as it was admitted, else what is valid of them now."""
    found: dict[str, str] = {}
    for prefix in integration.asked_by:
        asked = {
            key.removeprefix(prefix): value
            for key, value in annotations.items()
            if key.startswith(prefix)
        }
        if workload is not None:
            asked = {
                resource: text
                for resource, text in _admitted(workload).items()
                if resource in asked or resource not in integration.asked_always
            }
        asked = {resource: text for resource, text in asked.items() if _is_valid(resource, text)}
        record = _applied_requests(annotations, asked)
        found |= {f"{prefix}{resource}": text for resource, text in asked.items()}
        if record:
            text = orjson.dumps(record, option=orjson.OPT_SORT_KEYS).decode()
            found[names.REQUESTS_APPLIED] = text
    return found


def _admitted(workload: Body) -> dict[str, str]:
    """What the pod sets of a Workload request; only one of its pods stands for what has no template."""
    found: dict[str, str] = {}
    for pod_set in spec_of(workload).get("podSets") or []:
        for container in pod_set["template"]["spec"].get("containers") or []:
            requests = (container.get("resources") or {}).get("requests") or {}
            found |= {str(resource): str(text) for resource, text in requests.items()}
    return found


def _applied_requests(
    annotations: Mapping[str, str], asked: Mapping[str, str]
) -> dict[str, list[str | None]]:
    """What rules had added to the requests, as far as the record fits them: the copy's webhook undoes it."""
    try:
        record = orjson.loads(annotations.get(names.REQUESTS_APPLIED) or "{}")
    except orjson.JSONDecodeError:
        return {}
    fitting: dict[str, list[str | None]] = {}
    for resource, pair in record.items() if isinstance(record, dict) else ():
        match pair:
            case [str() | None as before, str() as after] if (
                resource in asked
                and _is_valid(resource, after)
                and amount(resource, after) == amount(resource, asked[resource])
                and (before is None or _is_valid(resource, before))
            ):
                fitting[resource] = [before, asked[resource]]
    return fitting


def _is_valid(resource: str, text: Any) -> bool:
    try:
        return bool(resource) and amount(resource, str(text)) >= 0
    except QuantityError:
        return False


def _recreations(annotations: dict[str, str]) -> int:
    """How many jobs were ended before; 0 if the annotation is absent or not a number."""
    digits = str(annotations.get(names.RECREATIONS) or "0")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < NAME_MAX else 0


def _name(first: str, number: int, uid: str, attempt: int) -> str:
    """The same for each attempt of the same number, in every process."""
    salted = f"{uid}/{attempt}" if attempt else uid
    digest = hashlib.sha256(salted.encode()).hexdigest()[:_HASH_LENGTH]
    tail = f"-r{number % 10_000}-{digest}"
    return first[: NAME_MAX - len(tail)].rstrip("-.") + tail
