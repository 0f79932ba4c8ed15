"""What decides about the admission of a pod, as a hash: pods of one hash are one pod set of their group.

The hash is Kueue's (kubernetes-sigs/kueue@ff69552 pkg/util/pod/pod.go, `GenerateRoleHash`), so that a group
of pods has the same pod sets under both. It has more only of what changes what quota counts, and which Kueue
leaves out: init containers that run on as sidecars, and limits that are requests as well, of a pod in which
no API server has written these.
"""

import hashlib
import json
from typing import Any, Final

from shared.contracts.kube.bodies import maps_at
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.pod_requests import SIDECAR, wanted_by

_CHARS: Final = 8

_AS_IT_IS: Final = ("affinity", "priority", "runtimeClassName")
_LISTS: Final = ("resourceClaims", "tolerations", "topologySpreadConstraints")
_MAPS: Final = ("nodeSelector", "overhead")

_ESCAPED: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
"""What Go's encoder escapes and Python's does not."""


def role_hash(spec: Object) -> str:
    """Hash a pod spec as an API server sends it: its fields are in the order of Go's structs."""
    shape: dict[str, Any] = {name: spec.get(name) for name in _AS_IT_IS}
    shape |= {name: spec.get(name) or None for name in _LISTS}
    shape |= {name: _sorted(spec.get(name)) for name in _MAPS}
    shape["containers"] = [_container(one) for one in maps_at(spec, "containers")] or None
    shape["initContainers"] = [
        {**_container(one), **_runs_on(one)} for one in maps_at(spec, "initContainers")
    ] or None
    if spec.get("resources") is not None:
        shape["resources"] = _sorted(wanted_by(spec))
    ordered = {"spec": dict(sorted(shape.items()))}
    text = json.dumps(ordered, separators=(",", ":"), ensure_ascii=False).translate(_ESCAPED)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_CHARS]


def asked_by(spec: Object) -> str:
    """Digest of what a pod asks for, wherever it runs: pods that differ in it are not of one pod set."""
    asked = [
        [one.get("resources") for one in maps_at(spec, name)]
        for name in ("containers", "initContainers")
    ]
    sidecars = [bool(_runs_on(one)) for one in maps_at(spec, "initContainers")]
    others = [spec.get("overhead"), spec.get("resources"), sidecars, claims_of(spec)]
    text = json.dumps([*asked, *others], sort_keys=True)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_CHARS]


def claims_of(spec: Object) -> list[str]:
    """Return the templates of the pod's resource claims, sorted; empty texts for claims of their own name."""
    claims = maps_at(spec, "resourceClaims")
    return sorted(str(one.get("resourceClaimTemplateName") or "") for one in claims)


def _container(container: Object) -> Object:
    return {
        "ports": container.get("ports") or None,
        "resources": {"requests": _sorted(wanted_by(container))},
    }


def _runs_on(container: Object) -> Object:
    policy = container.get("restartPolicy")
    return {"restartPolicy": policy} if policy == SIDECAR else {}


def _sorted(values: Any) -> Any:
    """A map with its keys in Go's order; None for an empty one."""
    return dict(sorted(values.items())) if isinstance(values, dict) and values else None
