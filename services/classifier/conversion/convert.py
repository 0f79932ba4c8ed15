"""Converts one object to the other version of its kind, and back, without loss.

An annotation keeps each field that the other version cannot say, together with the value that the field has
after a conversion there and back. On the way back the kept value returns, unless somebody changed the
converted one.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson
from pydantic import ValidationError

from services.classifier.conversion.version_mappings import (
    ANY,
    INEXPRESSIBLE,
    TO_V1BETA1,
    TO_V1BETA2,
    domains,
)
from shared.contracts.kube.bodies import list_at
from shared.contracts.kube.kinds import KUEUE_GROUP, Object
from shared.contracts.kube.names import kept_annotation
from shared.contracts.kueue.definitions import DEFINITIONS, STORAGE, V1BETA1

KEPT: Final = {version: kept_annotation(version) for version in (V1BETA1, STORAGE)}

KEPT_BYTES_MAX: Final = 64 * 1024
"""An object's annotations may have 256 KiB together, and other programs need some of it."""

_DEFINITIONS: Final = {definition.kind.kind: definition for definition in DEFINITIONS}
_OTHER: Final = {V1BETA1: STORAGE, STORAGE: V1BETA1}

Path = tuple[str, ...]
_ABSENT: Final = object()


class ConversionError(ValueError):
    """The kind is not ours, or the version is not served."""


def convert(obj: Object, api_version: str) -> Object:
    """Return `obj` in `api_version`; a list with all its items. Raises `ConversionError`.

    `obj` does not change. It is returned itself if it has that version already.
    """
    group, _, version = api_version.rpartition("/")
    if group != KUEUE_GROUP or version not in _OTHER:
        raise ConversionError(f"apiVersion: {api_version} is not served")
    if not isinstance(obj, dict):
        raise ConversionError(f"objects: must be objects, got {str(obj)[:40]!r}")
    kind, given = str(obj.get("kind")), str(obj.get("apiVersion"))
    if given == api_version:
        return obj
    if given != f"{KUEUE_GROUP}/{_OTHER[version]}":
        raise ConversionError(f"apiVersion: {given} cannot become {api_version}")
    if isinstance(obj.get("items"), list):
        items = [convert(item, api_version) for item in obj["items"]]
        return {**obj, "apiVersion": api_version, "items": items}
    if kind not in _DEFINITIONS:
        raise ConversionError(f"kind: {kind} is no kind of {KUEUE_GROUP}")
    try:
        return _convert_object(obj, kind, version)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # An API server sends objects that fit their schema; whoever else reaches the port may not.
        raise ConversionError(f"{kind}: does not fit the schema of {given}: {error}") from error


def _convert_object(obj: Object, kind: str, version: str) -> Object:
    given_version = _OTHER[version]
    stripped, kept = _pop_kept(obj, KEPT[version])
    converted = _in_version(stripped, kind, version)
    restored = _restore(converted, kind, version, kept)
    back = _in_version(restored, kind, given_version)
    lost = list(_lost_fields(stripped, back, kind, given_version))
    return _with_kept(restored, KEPT[given_version], lost)


def _in_version(obj: Object, kind: str, version: str) -> Object:
    rewrite = (TO_V1BETA2 if version == STORAGE else TO_V1BETA1).get(kind)
    converted = {
        **(obj if rewrite is None else _copy(obj)),
        "apiVersion": f"{KUEUE_GROUP}/{version}",
    }
    if rewrite is not None:
        rewrite(converted)
    return converted


def _copy(obj: Object) -> Object:
    """Return a deep copy. JSON is several times as fast as `deepcopy` for what came from JSON."""
    return orjson.loads(orjson.dumps(obj))


# Kept fields ---------------------------------------------------------------------------------------


def _lost_fields(was: Object, seen: Object, kind: str, version: str) -> Iterator[Object]:
    """Yield an entry for each field that differs after a conversion there and back."""
    lookup = _Lookup()
    for together in INEXPRESSIBLE.get((kind, version), ()):
        for pattern in together:
            for path in lookup.matching_paths(was, seen, pattern):
                before, after = lookup.get(was, path), lookup.get(seen, path)
                if before is _ABSENT and after is _ABSENT:
                    continue
                if before is _ABSENT or after is _ABSENT or before != after:
                    yield _entry(path, before, after)


def _entry(path: Path, was: Any, seen: Any) -> Object:
    entry: Object = {"path": list(path)}
    if was is not _ABSENT:
        entry["was"] = was
    if seen is not _ABSENT:
        entry["seen"] = seen
    return entry


class _Lookup:
    """Finds fields by their paths. Each list is looked through once, whatever is asked for."""

    def __init__(self) -> None:
        self._items: dict[int, tuple[list[Any], dict[str, Any]]] = {}
        """The identity of a list to itself and its items by name."""

    def get(self, node: Any, path: Path) -> Any:
        """Return what is at the path, or `_ABSENT`."""
        for step in path:
            if isinstance(node, dict):
                node = node.get(step, _ABSENT)
            elif isinstance(node, list):
                node = self._named(node).get(step, _ABSENT)
            else:
                return _ABSENT
        return node

    def matching_paths(self, left: Object, right: Object, pattern: Path) -> Iterator[Path]:
        """Yield the paths that match a pattern: one for each item with a unique name."""
        if ANY not in pattern:
            yield pattern
            return
        place = pattern.index(ANY)
        head, tail = pattern[:place], pattern[place + 1 :]
        names = dict.fromkeys([*self._names(left, head), *self._names(right, head)])
        for name in names:
            yield (*head, name, *tail)

    def _names(self, node: Object, head: Path) -> Iterable[str]:
        items = self.get(node, head)
        if not isinstance(items, list):
            return ()
        named = self._named(items)
        return named if len(named) == len(items) else ()

    def _named(self, items: list[Any]) -> dict[str, Any]:
        """Return the first item of each name."""
        if (found := self._items.get(id(items))) is None:
            found = items, {_name(item): item for item in reversed(items)}
            self._items[id(items)] = found
        return found[1]


def _name(item: Any) -> str:
    """Return an item's name; without one it is `main`, the API server's default for pod sets."""
    return str(item.get("name", "main")) if isinstance(item, dict) else ""


# Restored fields ----------------------------------------------------------------------------------


def _restore(converted: Object, kind: str, version: str, kept: list[Object]) -> Object:
    """Return `converted` with the kept fields of `version` whose converted values did not change."""
    if not kept:
        return converted
    result = _copy(converted)
    lookup = _Lookup()
    groups: dict[tuple[int, Path], list[Object]] = {}
    for number, together in enumerate(INEXPRESSIBLE.get((kind, version), ())):
        for entry in kept:
            for pattern in together:
                items = _items_of(pattern, entry["path"])
                if items is not None:
                    groups.setdefault((number, items), []).append(entry)
    for entries in groups.values():
        if all(_is_unchanged(lookup, result, entry) for entry in entries):
            for entry in entries:
                _put_back(lookup, result, entry)
    # Anybody can write the annotation: it must not bring in what the API server would refuse.
    faults = _invalid_fields(result, kind, version)
    return converted if faults and faults - _invalid_fields(converted, kind, version) else result


def _items_of(pattern: Path, path: list[str]) -> Path | None:
    """Return the item names in `path` if it matches `pattern`, else None."""
    if len(pattern) != len(path):
        return None
    pairs = list(zip(pattern, path, strict=True))
    if any(step not in {ANY, given} for step, given in pairs):
        return None
    return tuple(given for step, given in pairs if step == ANY)


def _is_unchanged(lookup: _Lookup, obj: Object, entry: Object) -> bool:
    path = tuple(entry["path"])
    if not isinstance(lookup.get(obj, path[:-1]), dict):
        return False
    now, seen = lookup.get(obj, path), entry.get("seen", _ABSENT)
    if path[-1] == "slices" and domains(list_at(entry, "was")) != domains(list_at(seen)):
        return False  # Restore slices only if they mean the same domains.
    return bool(now == seen)


def _put_back(lookup: _Lookup, obj: Object, entry: Object) -> None:
    path = tuple(entry["path"])
    parent = lookup.get(obj, path[:-1])
    if "was" in entry:
        parent[path[-1]] = entry["was"]
    else:
        parent.pop(path[-1], None)


def _invalid_fields(obj: Object, kind: str, version: str) -> set[tuple[Any, ...]]:
    """Return the paths of fields that the API server would refuse."""
    try:
        _DEFINITIONS[kind].model_of(version).model_validate(obj)
    except ValidationError as error:
        return {fault["loc"] for fault in error.errors(include_url=False, include_input=False)}
    return set()


# The annotation ------------------------------------------------------------------------------------


def _pop_kept(obj: Object, annotation: str) -> tuple[Object, list[Object]]:
    """Return the object without the annotation, and its entries; none if it has another form."""
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict) or annotation not in annotations:
        return obj, []
    rest = {key: value for key, value in annotations.items() if key != annotation}
    trimmed = {**obj["metadata"], "annotations": rest}
    if not rest:
        del trimmed["annotations"]
    return {**obj, "metadata": trimmed}, _read_entries(annotations[annotation])


def _read_entries(text: Any) -> list[Object]:
    try:
        entries = orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError):
        return []
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if _is_entry(entry)]


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, Mapping):
        return False
    path = entry.get("path")
    return isinstance(path, list) and bool(path) and all(isinstance(step, str) for step in path)


def _with_kept(obj: Object, annotation: str, lost: list[Object]) -> Object:
    """Return the object with exactly these entries in the annotation."""
    obj, _ = _pop_kept(obj, annotation)
    if not lost:
        return obj
    text = orjson.dumps(lost, option=orjson.OPT_SORT_KEYS).decode()
    written_by_people = [entry for entry in lost if entry["path"][0] != "status"]
    if len(text) > KEPT_BYTES_MAX and len(written_by_people) < len(lost):
        # Programs write a status again. What people wrote is small, so it is kept.
        return _with_kept(obj, annotation, written_by_people)
    metadata = obj.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), annotation: text}
    return {**obj, "metadata": {**metadata, "annotations": annotations}}
