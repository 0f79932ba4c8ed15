"""From one served version of a kind to another. Objects are kept in the storage version."""

from services.classifier.conversion.convert import ConversionError
from services.classifier.conversion.convert import convert as convert_ours
from services.simulator.cluster.errors import internal_error
from services.simulator.cluster.kinds.registry import Kind, Obj
from shared.contracts.kueue.definitions import DEFINITIONS

_OURS = frozenset((definition.kind.group, definition.kind.kind) for definition in DEFINITIONS)


def convert(kind: Kind, obj: Obj, version: str) -> Obj:
    """Return `obj` as `version` of its kind. The object itself is returned if it already is.

    Our kinds go through the classifier's conversion, as on a cluster whose definitions name it; of
    others only `apiVersion` changes, as where a definition says `strategy: None`.
    """
    wanted = kind.api_version(version)
    if obj["apiVersion"] == wanted:
        return obj
    if (kind.group, kind.kind) not in _OURS:
        return {**obj, "apiVersion": wanted}
    try:
        converted: Obj = convert_ours(obj, wanted)
    except ConversionError as error:
        raise internal_error(f"conversion webhook for {wanted} failed: {error}") from error
    return converted
