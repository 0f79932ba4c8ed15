"""What an admission adds to the pods of each pod set: of its flavors, its queues and its checks. Pure.

The rules are Kueue's (kubernetes-sigs/kueue pkg/podset/podset.go and getPodSetsInfoFromStatus of
pkg/controller/jobframework/reconciler.go): a check may add labels, annotations, node selectors and
tolerations, but change none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from shared.contracts.kube import names
from shared.contracts.kube.bodies import Body, spec_of, status_of
from shared.contracts.messages.admissions import Admission, PodSetAssignment
from shared.integrations import ObjectError, PodSetInfo


def pod_set_infos(
    admission: Admission, workload: Body, flavors: Mapping[str, Body]
) -> tuple[PodSetInfo, ...]:
    """The additions of each pod set. `flavors`: the ResourceFlavors that the admission names.

    Raises `ObjectError` if two of the sources, or one and the pod template, contradict each other.
    """
    pod_sets = spec_of(workload).get("podSets") or []
    templates = {each.get("name"): each.get("template") or {} for each in pod_sets}
    updates = list(_updates_of(workload))
    queues = _queue_labels(admission, workload)
    return tuple(
        _info(assigned, templates.get(assigned.name) or {}, queues, flavors, updates)
        for assigned in admission.pod_sets
    )


def _updates_of(workload: Body) -> list[tuple[str, Mapping[str, Any]]]:
    listed = status_of(workload).get("admissionChecks") or []
    return [
        (str(check.get("name")), update)
        for check in listed
        for update in check.get("podSetUpdates") or []
    ]


def _queue_labels(admission: Admission, workload: Body) -> dict[str, str]:
    """The queues that admitted it; a name that is no value of a label is left out."""
    queues = {
        names.LOCAL_QUEUE_LABEL: str(spec_of(workload).get("queueName") or admission.queue),
        names.CLUSTER_QUEUE_LABEL: admission.cluster_queue,
    }
    return {label: name for label, name in queues.items() if names.is_dns_label(name)}


def _info(
    assigned: PodSetAssignment,
    template: Mapping[str, Any],
    queue_labels: Mapping[str, str],
    flavors: Mapping[str, Body],
    updates: Sequence[tuple[str, Mapping[str, Any]]],
) -> PodSetInfo:
    given: dict[str, dict[str, str]] = {
        "labels": {names.POD_SET_LABEL: assigned.name, **queue_labels},
        "annotations": {},
        "nodeSelector": {},
    }
    tolerations: list[dict[str, Any]] = []
    for name in dict.fromkeys(assigned.flavors.values()):
        spec = spec_of(flavors[name])
        given["nodeSelector"].update(spec.get("nodeLabels") or {})
        tolerations.extend(spec.get("tolerations") or [])
    metadata, pod = template.get("metadata") or {}, template.get("spec") or {}
    present = {"nodeSelector": pod.get("nodeSelector") or {}}
    present |= {key: metadata.get(key) or {} for key in ("labels", "annotations")}
    has = [*(pod.get("tolerations") or []), *tolerations]
    for check, update in updates:
        if update.get("name") != assigned.name:
            continue
        for key, mapping in given.items():
            added = update.get(key) or {}
            _refuse_conflicts(check, assigned.name, key, {**present[key], **mapping}, added)
            mapping.update(added)
        new = [each for each in update.get("tolerations") or [] if each not in has]
        tolerations += new
        has += new
    return PodSetInfo(
        name=assigned.name,
        count=assigned.count,
        node_selector=given["nodeSelector"],
        tolerations=tuple(tolerations),
        labels=given["labels"],
        annotations=given["annotations"],
    )


def _refuse_conflicts(
    check: str, pod_set: str, key: str, present: Mapping[str, str], added: Mapping[str, str]
) -> None:
    for name, value in added.items():
        if present.get(name, value) != value:
            where = f"admission check {check!r}: podSetUpdates[{pod_set}].{key}[{name}]"
            raise ObjectError(f"{where}: {value!r}: conflicts with {present[name]!r}")
