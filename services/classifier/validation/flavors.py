"""Kueue's rules for ResourceFlavor, Topology, AdmissionCheck and the MultiKueue kinds."""

from collections.abc import Iterator
from typing import Any

from services.classifier.validation.names import labels, taints, tolerations
from services.classifier.validation.problems import IMMUTABLE, Problem, duplicate, invalid
from services.classifier.validation.reading import at, indexed, listed, mapping
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import HOSTNAME


def resource_flavor(obj: Object) -> Iterator[Problem]:
    """Check a ResourceFlavor by itself."""
    spec = mapping(obj, "spec")
    node_labels = mapping(spec, "nodeLabels")
    yield from labels("spec.nodeLabels", node_labels)
    yield from taints("spec.nodeTaints", listed(spec, "nodeTaints"))
    yield from tolerations("spec.tolerations", listed(spec, "tolerations"))
    if spec.get("topologyName") and not node_labels:
        yield invalid(
            "spec.nodeLabels",
            node_labels,
            "at least one nodeLabel is required when topology is set",
        )


def resource_flavor_update(obj: Object, old: Object) -> Iterator[Problem]:
    """A set topology is immutable, because pods were placed by it."""
    before, now = at(old, "spec", "topologyName"), at(obj, "spec", "topologyName")
    if before and before != now:
        yield invalid(
            "spec.topologyName", now, "topologyName is immutable when topologyName is set"
        )


def topology(obj: Object) -> Iterator[Problem]:
    """Check a Topology by itself."""
    found = _levels(obj)
    seen = set()
    for (path, _), label in zip(
        indexed("spec.levels", listed(obj, "spec", "levels")), found, strict=True
    ):
        if label in seen:
            yield duplicate(f"{path}.nodeLabel", label, "must be unique")
        seen.add(label)
    if HOSTNAME in found[:-1]:
        yield invalid(
            "spec.levels",
            found,
            f"the {HOSTNAME} label can only be used at the lowest level of topology",
        )


def topology_update(obj: Object, old: Object) -> Iterator[Problem]:
    """Levels may change while the lowest one is the node: then assignments name nodes."""
    before, now = _levels(old), _levels(obj)
    if before != now and not (before[-1:] == now[-1:] == [HOSTNAME]):
        yield invalid(
            "spec.levels",
            now,
            f"levels are mutable only when {HOSTNAME} is the lowest level both before and after "
            "the change",
        )


def _levels(obj: Object) -> list[Any]:
    return [at(level, "nodeLabel") for _, level in indexed("", listed(obj, "spec", "levels"))]


def admission_check_update(obj: Object, old: Object) -> Iterator[Problem]:
    """The controller is immutable, because it wrote the check states of workloads."""
    before, now = at(old, "spec", "controllerName"), at(obj, "spec", "controllerName")
    if before and before != now:
        yield invalid("spec.controllerName", now, IMMUTABLE)


def multikueue_config(obj: Object) -> Iterator[Problem]:
    """A cluster may be listed once."""
    clusters = listed(obj, "spec", "clusters")
    seen: set[str] = set()
    for index, name in enumerate(map(str, clusters)):
        if name in seen:
            yield duplicate(f"spec.clusters[{index}]", name, "must be unique")
        seen.add(name)


def multikueue_cluster(obj: Object) -> Iterator[Problem]:
    """A cluster has exactly one source."""
    source = mapping(obj, "spec", "clusterSource")
    given = [key for key in ("kubeConfig", "clusterProfileRef") if source.get(key) is not None]
    if obj.get("spec") is not None and len(given) != 1:
        yield invalid(
            "spec.clusterSource",
            given,
            "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
        )
