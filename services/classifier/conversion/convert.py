"""One object in the other version of its kind, and back again, without loss.

What the other version cannot say is kept in an annotation, each field with what came of it there.
On the way back the field returns if nobody has changed what came of it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
from pydantic import ValidationError

from services.classifier.conversion.version_mappings import ANY, NEWER, OLDER, UNSAID, domains
from shared.contracts.kube.kinds import Object
from shared.contracts.kueue.definitions import DEFINITIONS, STORAGE, V1BETA1

__all__ = ["KEPT", "ConversionError", "convert"]

GROUP: Final = "kueue.x-k8s.io"
KEPT: Final = {version: f"sluicegate.dev/kept-from-{version}" for version in (V1BETA1, STORAGE)}
"""Annotation with what an object of this version said and the other version cannot say."""

KEPT_BYTES_MAX: Final = 64 * 1024
"""An object's annotations together may have 256 KiB, and others want some of it."""

_DEFINITIONS: Final = {definition.kind.kind: definition for definition in DEFINITIONS}
_OTHER: Final = {V1BETA1: STORAGE, STORAGE: V1BETA1}

Path = tuple[str, ...]
_ABSENT: Final = object()


class ConversionError(ValueError):
    """No object of ours, or a version that we do not serve."""


def convert(obj: Object, api_version: str) -> Object:
    """Return `obj` as `api_version`; a list with all its items so. Raises `ConversionError`.

    The object that is given is not changed; it is returned itself if it is of that version.
    """
    group, _, wanted = api_version.rpartition("/")
    if group != GROUP or wanted not in _OTHER:
        raise ConversionError(f"apiVersion: {api_version} is not served")
    kind, given = str(obj.get("kind")), str(obj.get("apiVersion"))
    if given == api_version:
        return obj
    if given != f"{GROUP}/{_OTHER[wanted]}":
        raise ConversionError(f"apiVersion: {given} cannot become {api_version}")
    if isinstance(obj.get("items"), list):
        items = [convert(item, api_version) for item in obj["items"]]
        return {**obj, "apiVersion": api_version, "items": items}
    if kind not in _DEFINITIONS:
        raise ConversionError(f"kind: {kind} is no kind of {GROUP}")
    return _converted(obj, kind, wanted)


def _converted(obj: Object, kind: str, wanted: str) -> Object:
    from_ = _OTHER[wanted]
    taken, kept = _without(obj, KEPT[wanted])
    made = _rewritten(taken, kind, wanted)
    restored = _restored(made, kind, wanted, kept)
    back = _rewritten(restored, kind, from_)
    lost = list(_losses(taken, back, kind, from_))
    return _with(restored, KEPT[from_], lost)


def _rewritten(obj: Object, kind: str, wanted: str) -> Object:
    rewrite = (NEWER if wanted == STORAGE else OLDER).get(kind)
    made = {**(obj if rewrite is None else _copy(obj)), "apiVersion": f"{GROUP}/{wanted}"}
    if rewrite is not None:
        rewrite(made)
    return made


def _copy(obj: Object) -> Object:
    """All of it: what comes from JSON goes through JSON several times as fast as `deepcopy`."""
    copied: Object = orjson.loads(orjson.dumps(obj))
    return copied


# What is kept --------------------------------------------------------------------------------------


def _losses(was: Object, seen: Object, kind: str, version: str) -> Iterator[Object]:
    """The fields that do not come back by themselves, each with what does come back."""
    for together in UNSAID.get((kind, version), ()):
        for pattern in together:
            for path in _expanded(was, seen, pattern):
                before, after = _get(was, path), _get(seen, path)
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


def _expanded(left: Object, right: Object, pattern: Path) -> Iterator[Path]:
    """The paths that a pattern stands for: one for each item that has a name of its own."""
    if ANY not in pattern:
        yield pattern
        return
    place = pattern.index(ANY)
    head, tail = pattern[:place], pattern[place + 1 :]
    names = dict.fromkeys([*_names(_get(left, head)), *_names(_get(right, head))])
    for name in names:
        yield (*head, name, *tail)


def _names(items: Any) -> list[str]:
    found = [_name(item) for item in items] if isinstance(items, list) else []
    return found if len(set(found)) == len(found) else []


def _name(item: Any) -> str:
    """An item without a name is `main`, as the API server would have it."""
    return str(item.get("name", "main")) if isinstance(item, dict) else ""


def _get(node: Any, path: Path) -> Any:
    for step in path:
        node = _child(node, step)
    return node


def _child(node: Any, step: str) -> Any:
    if isinstance(node, dict):
        return node.get(step, _ABSENT)
    if isinstance(node, list):
        return next((item for item in node if _name(item) == step), _ABSENT)
    return _ABSENT


# What comes back -----------------------------------------------------------------------------------


def _restored(made: Object, kind: str, version: str, kept: list[Object]) -> Object:
    """`made` with the fields of `version` that were kept and still mean what they meant."""
    if not kept:
        return made
    result = _copy(made)
    groups: dict[tuple[int, Path], list[Object]] = {}
    for number, together in enumerate(UNSAID.get((kind, version), ())):
        for entry in kept:
            for pattern in together:
                items = _items_of(pattern, entry["path"])
                if items is not None:
                    groups.setdefault((number, items), []).append(entry)
    for entries in groups.values():
        if all(_untouched(result, entry) for entry in entries):
            for entry in entries:
                _put(result, entry)
    # Anybody may write an annotation: nothing comes in this way that would not come in otherwise.
    faults = _faults(result, kind, version)
    return made if faults and faults - _faults(made, kind, version) else result


def _items_of(pattern: Path, path: list[str]) -> Path | None:
    """The items of lists that `path` is about, if it is one of those that `pattern` stands for."""
    if len(pattern) != len(path):
        return None
    pairs = list(zip(pattern, path, strict=True))
    if any(step not in {ANY, given} for step, given in pairs):
        return None
    return tuple(given for step, given in pairs if step == ANY)


def _untouched(obj: Object, entry: Object) -> bool:
    path = tuple(entry["path"])
    if not isinstance(_get(obj, path[:-1]), dict):
        return False
    now, seen = _get(obj, path), entry.get("seen", _ABSENT)
    if path[-1] == "slices" and domains(_list(entry.get("was"))) != domains(_list(seen)):
        return False  # Only another way to write the same places comes back.
    return bool(now == seen)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _put(obj: Object, entry: Object) -> None:
    path = tuple(entry["path"])
    parent = _get(obj, path[:-1])
    if "was" in entry:
        parent[path[-1]] = entry["was"]
    else:
        parent.pop(path[-1], None)


def _faults(obj: Object, kind: str, version: str) -> set[tuple[Any, ...]]:
    """What the API server would not take of it."""
    try:
        _DEFINITIONS[kind].model_of(version).model_validate(obj)
    except ValidationError as error:
        return {fault["loc"] for fault in error.errors(include_url=False, include_input=False)}
    return set()


# The annotation ------------------------------------------------------------------------------------


def _without(obj: Object, annotation: str) -> tuple[Object, list[Object]]:
    """The object without the annotation, and what stood in it; nothing, if it is not ours."""
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict) or annotation not in annotations:
        return obj, []
    rest = {key: value for key, value in annotations.items() if key != annotation}
    trimmed = {**obj["metadata"], "annotations": rest}
    if not rest:
        del trimmed["annotations"]
    return {**obj, "metadata": trimmed}, _read(annotations[annotation])


def _read(text: Any) -> list[Object]:
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


def _with(obj: Object, annotation: str, lost: list[Object]) -> Object:
    """The object with the annotation as it must be now."""
    obj, _ = _without(obj, annotation)
    if not lost:
        return obj
    text = orjson.dumps(lost, option=orjson.OPT_SORT_KEYS).decode()
    written_by_people = [entry for entry in lost if entry["path"][0] != "status"]
    if len(text) > KEPT_BYTES_MAX and len(written_by_people) < len(lost):
        # What programs wrote they write again; what people wrote is small.
        return _with(obj, annotation, written_by_people)
    metadata = obj.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), annotation: text}
    return {**obj, "metadata": {**metadata, "annotations": annotations}}
