"""Rules of single built-in kinds: defaults, generated fields, immutable fields."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

from services.simulator.cluster.errors import Cause, bad_request, invalid
from services.simulator.cluster.kinds.registry import Kind, Obj
from services.simulator.cluster.storage.stored import Stored
from shared.contracts.kube.names import CONTROLLER_UID, JOB_NAME, NAMESPACE_NAME
from shared.contracts.kube.quantities import QuantityError, parse_quantity

JOB_DEFAULTS: Final[dict[str, Any]] = {
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "manualSelector": False,
    "suspend": False,
    "podReplacementPolicy": "TerminatingOrFailed",
}
JOB_TYPES: Final[dict[str, type]] = {
    "activeDeadlineSeconds": int,
    "backoffLimit": int,
    "completions": int,
    "parallelism": int,
    "suspend": bool,
    "template": dict,
    "ttlSecondsAfterFinished": int,
}
JOB_TEMPLATE_MUTABLE: Final = ("nodeSelector", "tolerations", "affinity", "schedulingGates")
"""Fields of the pod template that may change while a Job is suspended and has not started (KEP-2926)."""


def _job_defaults(obj: Obj) -> Obj:
    _check_types(_mapping(obj.get("spec")))
    spec = {**JOB_DEFAULTS, **_mapping(obj.get("spec"))}
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    template = _mapping(spec.get("template"))
    where = 'Job in version "v1" cannot be handled as a Job'
    _check_quantities(where, _mapping(template.get("spec")))
    pod = {"schedulerName": "default-scheduler", **_mapping(template.get("spec"))}
    spec["template"] = {"metadata": {}, **template, "spec": pod}
    return {**obj, "spec": spec}


def _check_types(spec: Obj) -> None:
    """Raise 400 for values that a typed server cannot decode."""
    for field, type_ in JOB_TYPES.items():
        value = spec.get(field)
        # In Python a bool is an int; in JSON it is not.
        mistaken = isinstance(value, bool) and type_ is not bool
        if value is not None and (mistaken or not isinstance(value, type_)):
            shown = type(value).__name__
            raise bad_request(
                f"unable to decode: json: cannot unmarshal {shown} into field spec.{field} of "
                f"type {type_.__name__}"
            )


def _check_quantities(where: str, pod: Obj) -> None:
    """Raise 400 for requests and limits that are no quantities."""
    for part in ("initContainers", "containers"):
        for container in pod.get(part) or ():
            resources = _mapping(_mapping(container).get("resources"))
            for amounts in (resources.get("requests"), resources.get("limits")):
                for text in _mapping(amounts).values():
                    _check_quantity(where, text)


def _check_quantity(where: str, text: object) -> None:
    if isinstance(text, int | float) and not isinstance(text, bool):
        return
    try:
        parse_quantity(str(text))
    except QuantityError as error:
        raise bad_request(
            f"{where}: quantities must match the regular expression "
            f"'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$': {text!r}"
        ) from error


def _pod_defaults(obj: Obj) -> Obj:
    where = 'Pod in version "v1" cannot be handled as a Pod'
    _check_quantities(where, _mapping(obj.get("spec")))
    return obj


def _job_complete(obj: Obj) -> Obj:
    """Set the selector and labels that connect a new Job to its pods."""
    spec = obj["spec"]
    if spec.get("manualSelector"):
        return obj
    uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
    generated = {
        CONTROLLER_UID: uid,
        JOB_NAME: name,
        "controller-uid": uid,
        "job-name": name,
    }
    template = spec["template"]
    metadata = _mapping(template.get("metadata"))
    metadata = {**metadata, "labels": {**_mapping(metadata.get("labels")), **generated}}
    selector = {"matchLabels": {CONTROLLER_UID: uid}}
    return {
        **obj,
        "spec": {**spec, "selector": selector, "template": {**template, "metadata": metadata}},
    }


def _job_update(kind: Kind, old: Stored, new: Obj) -> None:
    before, after = old.obj["spec"], new.get("spec") or {}
    fields = ["selector", "completionMode", "manualSelector", "podFailurePolicy", "managedBy"]
    # Those of an Indexed Job change together with its parallelism only.
    if before.get("completionMode") != "Indexed" or (
        after.get("completions") != after.get("parallelism")
    ):
        fields.append("completions")
    causes = [_immutable(f"spec.{name}") for name in fields if before.get(name) != after.get(name)]
    waits = before.get("suspend") and not (old.obj.get("status") or {}).get("startTime")
    left, right = before.get("template"), after.get("template")
    if waits:
        left, right = _without_scheduling(left), _without_scheduling(right)
    if left != right:
        causes.append(_immutable("spec.template"))
    if causes:
        raise invalid(kind, old.name, causes)


def _without_scheduling(template: Any) -> Any:
    template = _mapping(template)
    metadata = {
        key: value
        for key, value in _mapping(template.get("metadata")).items()
        if key not in {"labels", "annotations"}
    }
    pod = _mapping(template.get("spec"))
    return metadata, {key: pod[key] for key in pod if key not in JOB_TEMPLATE_MUTABLE}


def _immutable(field: str) -> Cause:
    message = "Invalid value: field is immutable"
    return Cause(reason="FieldValueInvalid", field=field, message=message)


def _namespace_complete(obj: Obj) -> Obj:
    metadata = obj["metadata"]
    named = {NAMESPACE_NAME: metadata["name"]}
    labels = {**_mapping(metadata.get("labels")), **named}
    return {
        **obj,
        "metadata": {**metadata, "labels": labels},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def _pod_complete(obj: Obj) -> Obj:
    return {**obj, "status": {"phase": "Pending", "qosClass": "Burstable"}}


def _secret_complete(obj: Obj) -> Obj:
    """Move `stringData`, which is write only, into `data`."""
    obj = {"type": "Opaque", **obj}
    if text := obj.pop("stringData", None):
        encoded = {key: _base64(value) for key, value in text.items()}
        obj["data"] = {**_mapping(obj.get("data")), **encoded}
    return {
        **{key: obj.pop(key) for key in ("apiVersion", "kind", "metadata")},
        **obj,
    }


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_DEFAULTS: Final[dict[str, Callable[[Obj], Obj]]] = {
    "jobs.batch": _job_defaults,
    "pods": _pod_defaults,
}
_COMPLETE: Final[dict[str, Callable[[Obj], Obj]]] = {
    "jobs.batch": _job_complete,
    "namespaces": _namespace_complete,
    "pods": _pod_complete,
    "secrets": _secret_complete,
}
_UPDATE: Final[dict[str, Callable[[Kind, Stored, Obj], None]]] = {"jobs.batch": _job_update}


def apply_defaults(kind: Kind, obj: Obj) -> Obj:
    """Set the defaults that the API server sets while decoding, before admission."""
    defaults = _DEFAULTS.get(kind.resource)
    return obj if defaults is None else defaults(obj)


def complete(kind: Kind, obj: Obj) -> Obj:
    """Set the fields of a new object that depend on its name and uid."""
    completes = _COMPLETE.get(kind.resource)
    return obj if completes is None else completes(obj)


def validate_update(kind: Kind, old: Stored, obj: Obj) -> None:
    """Raise 422 for a change of an immutable field."""
    validates = _UPDATE.get(kind.resource)
    if validates is not None:
        validates(kind, old, obj)
