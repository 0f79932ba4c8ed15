"""CustomResourceDefinitions: registering one makes its kind served."""

from typing import Any, Final

from services.simulator.cluster.kinds.catalogue import BUILT_IN
from services.simulator.cluster.kinds.registry import AGE, Kind, Obj, column_from

CRD_RESOURCE: Final = "customresourcedefinitions.apiextensions.k8s.io"


def kind_from(definition: Obj) -> Kind | None:
    """Return the kind that a definition describes, or ``None`` if it serves no version."""
    spec = definition["spec"]
    names = spec["names"]
    versions = [version for version in spec.get("versions") or () if version.get("served", True)]
    if not versions:
        return None
    versions.sort(key=lambda version: not version.get("storage"))
    storage = versions[0]
    subresources = storage.get("subresources") or {}
    columns = tuple(column_from(column) for column in storage.get("additionalPrinterColumns") or ())
    return Kind(
        group=spec["group"],
        versions=tuple(version["name"] for version in versions),
        kind=names["kind"],
        plural=names["plural"],
        namespaced=spec.get("scope", "Namespaced") == "Namespaced",
        has_status="status" in subresources,
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        columns=columns or (AGE,),
        selectable=tuple(
            field["jsonPath"].lstrip(".") for field in storage.get("selectableFields") or ()
        ),
        custom=True,
        schemas={
            version["name"]: version["schema"]["openAPIV3Schema"]
            for version in versions
            if (version.get("schema") or {}).get("openAPIV3Schema")
        },
    )


def shipped(group: str, plural: str) -> Kind | None:
    """Return the kind that is served without a definition, if there is one."""
    found = (kind for kind in BUILT_IN if (kind.group, kind.plural) == (group, plural))
    return next(found, None)


def accepted(definition: Obj, now: str) -> dict[str, Any]:
    """Return the status that tells the definition is served."""
    spec = definition["spec"]
    conditions = [
        {
            "type": type_,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        }
        for type_, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [version["name"] for version in spec.get("versions") or () if version.get("storage")]
    return {"acceptedNames": spec["names"], "conditions": conditions, "storedVersions": stored}
