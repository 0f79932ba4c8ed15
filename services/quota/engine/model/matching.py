"""Label selectors, node affinity, taints and tolerations: which flavors and namespaces match."""

from collections.abc import Mapping

from services.quota.engine.facts import FlavorChanged, PodSet, Requirement, Taint, Toleration


def flavor_mismatch(ps: PodSet, name: str, flavors: Mapping[str, FlavorChanged]) -> str | None:
    """Why pods of this set can never run on nodes of that flavor; None: they can."""
    flavor = flavors.get(name)
    if flavor is None:
        return f"flavor {name} not found"
    for taint in flavor.node_taints:
        if taint.effect in {"NoSchedule", "NoExecute"} and not any(
            _tolerates(t, taint) for t in (*ps.tolerations, *flavor.tolerations)
        ):
            shown = f"{taint.key}={taint.value}" if taint.value else taint.key
            return f"untolerated taint {shown}:{taint.effect} in flavor {name}"
    if not _selected(ps, flavor.node_labels):
        return f"flavor {name} doesn't match node affinity"
    return None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return bool(toleration.key) and toleration.value == taint.value
        case "Lt" | "Gt":
            return bool(toleration.key) and _compare(
                taint.value, toleration.operator, toleration.value
            )
        case _:
            return False


def _selected(ps: PodSet, labels: Mapping[str, str]) -> bool:
    """Whether node selector and affinity match; only keys that the flavor has count."""
    if any(labels[k] != v for k, v in ps.node_selector.items() if k in labels):
        return False
    terms = []
    for term in ps.affinity:
        known = [r for r in term if r.key in labels]
        if not known:
            return True
        terms.append(known)
    return not terms or any(all(requirement_holds(r, labels) for r in term) for term in terms)


def requirement_holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether `labels` satisfy one requirement of a selector."""
    label = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return label in requirement.values
        case "NotIn":
            return label is None or label not in requirement.values
        case "Exists":
            return label is not None
        case "DoesNotExist":
            return label is None
        case "Gt" | "Lt":
            return (
                label is not None
                and len(requirement.values) == 1
                and _compare(label, requirement.operator, requirement.values[0])
            )


def _compare(label: str, operator: str, value: str) -> bool:
    """Whether `label` is greater (`Gt`) or less than `value`; False unless both are integers."""
    try:
        left, right = int(label), int(value)
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right
