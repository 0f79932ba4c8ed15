"""Fields that a kind does not have, as server-side field validation finds them for `kubectl apply`."""

from collections.abc import Iterator
from typing import Any, Final

from services.simulator.cluster.kinds.registry import Obj

_ANYTHING: Final[Obj] = {"x-kubernetes-preserve-unknown-fields": True}


def _closed(names: str, **known: Obj) -> Obj:
    """The schema of an object with these fields and no other."""
    return {"properties": dict.fromkeys(names.split(), _ANYTHING) | known}


_CONTAINERS: Final[Obj] = {
    "items": _closed(
        "args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports "
        "readinessProbe resizePolicy restartPolicy restartPolicyRules securityContext startupProbe "
        "stdin stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices "
        "volumeMounts workingDir",
        resources=_closed("claims limits requests"),
    )
}
_POD: Final = _closed(
    "activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy "
    "enableServiceLinks ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers "
    "hostname hostnameOverride imagePullSecrets nodeName nodeSelector os overhead preemptionPolicy "
    "priority priorityClassName readinessGates resourceClaims resources restartPolicy "
    "runtimeClassName schedulerName schedulingGates securityContext serviceAccount "
    "serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain "
    "terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes",
    containers=_CONTAINERS,
    initContainers=_CONTAINERS,
)
_JOB: Final = _closed(
    "activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions managedBy "
    "manualSelector maxFailedIndexes parallelism podFailurePolicy podReplacementPolicy selector "
    "successPolicy suspend ttlSecondsAfterFinished",
    template=_closed("metadata", spec=_POD),
)
BUILT_IN: Final[dict[str, Obj]] = {
    "jobs.batch": _closed("apiVersion kind metadata status", spec=_JOB),
    "pods": _closed("apiVersion kind metadata status", spec=_POD),
}
"""By resource: kinds that have no definition, as far down as people write them."""


def unknown_fields(schema: Obj, value: Any, path: str = "") -> Iterator[str]:
    """Paths of the members of `value` that the OpenAPI schema does not have."""
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for index, item in enumerate(value):
                yield from unknown_fields(items, item, f"{path}[{index}]")
        return
    if not isinstance(value, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    properties, rest = schema.get("properties"), schema.get("additionalProperties")
    for name, member in value.items():
        below = f"{path}.{name}".lstrip(".")
        if isinstance(properties, dict) and name in properties:
            yield from unknown_fields(properties[name], member, below)
        elif isinstance(rest, dict):
            yield from unknown_fields(rest, member, below)
        elif isinstance(properties, dict) and not rest and not name.startswith("$"):
            yield below
