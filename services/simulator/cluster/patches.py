"""Patches: JSON patch (RFC 6902), merge patch (RFC 7386) and strategic merge patch.

No function changes its arguments: unchanged parts are shared between the old and the new object.
JSON patch follows evanphx/json-patch, which the API server uses, where that differs from the RFC: a
`test` treats a missing member as null, and a missing `value` is null in a `test` only.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from services.simulator.cluster.errors import bad_request, unprocessable_patch

OPERATIONS_MAX: Final = 10_000
"""The API server's limit for the operations of one JSON patch."""

MERGE_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort", "port"),
    "conditions": ("type",),
    "ownerReferences": ("uid",),
    "webhooks": ("name",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "addresses": ("type",),
}
"""Fields that identify the entries of a list, from the ``patchMergeKey`` tags of the built-in
types. A list without an entry here is replaced as a whole."""

UNION_LISTS: Final = frozenset({"finalizers"})
"""Lists of plain values to which a strategic merge patch adds."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply an RFC 7386 patch: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_merge_patch(target: Any, patch: Any) -> Any:
    """Apply a strategic merge patch to an object of a built-in kind."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key == "$patch" or key.startswith(("$setElementOrder/", "$retainKeys")):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.removeprefix("$deleteFromPrimitiveList/")
            merged[name] = [entry for entry in merged.get(name) or [] if entry not in value]
        elif value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            merged.pop(key, None)
        elif isinstance(value, list):
            merged[key] = _merge_list(key, merged.get(key), value)
        else:
            merged[key] = strategic_merge_patch(merged.get(key), value)
    return merged


def _merge_list(name: str, target: Any, patch: list[Any]) -> list[Any]:
    old = target if isinstance(target, list) else []
    if name in UNION_LISTS:
        return [*old, *(entry for entry in patch if entry not in old)]
    keys = MERGE_KEYS.get(name)
    if keys is None or not all(isinstance(entry, dict) for entry in patch):
        return patch
    merged = list(old)
    for entry in patch:
        if entry.get("$patch") == "replace":
            return [other for other in patch if other is not entry]
        key = next((key for key in keys if key in entry), None)
        if key is None:
            raise bad_request(f"map: {entry} does not contain declared merge key: {keys[0]}")
        found = (i for i, other in enumerate(merged) if other.get(key) == entry[key])
        index = next(found, None)
        if entry.get("$patch") == "delete":
            merged = [other for other in merged if other.get(key) != entry[key]]
        elif index is None:
            merged.append(strategic_merge_patch(None, entry))
        else:
            merged[index] = strategic_merge_patch(merged[index], entry)
    return merged


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise bad_request(f"error decoding patch: {text!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _index(part: str, length: int, path: str) -> int:
    if not part.isascii() or not part.isdigit() or (part[0] == "0" and part != "0"):
        raise unprocessable_patch(f"{path}: {part!r} is not an array index")
    index = int(part)
    if index > length:
        raise unprocessable_patch(f"{path}: index {index} is out of bounds")
    return index


def _resolve(document: Any, parts: Sequence[str], path: str) -> Any:
    for part in parts:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list) and _index(part, len(document), path) < len(document):
            document = document[int(part)]
        else:
            raise unprocessable_patch(f"{path}: path does not exist")
    return document


def _set(document: Any, parts: Sequence[str], value: Any, op: str, path: str) -> Any:
    """Return `document` with `parts` added, replaced or removed; the rest is shared."""
    if not parts:
        return value
    head, tail = parts[0], parts[1:]
    if isinstance(document, dict):
        if head not in document and (tail or op != "add"):
            raise unprocessable_patch(f"{op} operation does not apply: doc is missing path: {path}")
        copy = dict(document)
        if tail:
            copy[head] = _set(document[head], tail, value, op, path)
        elif op == "remove":
            del copy[head]
        else:
            copy[head] = value
        return copy
    if isinstance(document, list):
        entries = list(document)
        if not tail and op == "add":
            entries.insert(len(entries) if head == "-" else _index(head, len(entries), path), value)
            return entries
        index = _index(head, len(entries) - 1, path)
        if index >= len(entries):
            raise unprocessable_patch(f"{op} operation does not apply: doc is missing path: {path}")
        if tail:
            entries[index] = _set(entries[index], tail, value, op, path)
        elif op == "remove":
            del entries[index]
        else:
            entries[index] = value
        return entries
    raise unprocessable_patch(f"{op} operation does not apply: doc is missing path: {path}")


def json_patch(document: Any, operations: Any) -> Any:
    """Apply an RFC 6902 patch, all of it or nothing.

    Raises 400 for a patch that cannot be read, and 422 for one that does not apply, for instance
    because a ``test`` failed. The API server makes the same distinction.
    """
    if not isinstance(operations, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal into Go value of type Patch"
        )
    if len(operations) > OPERATIONS_MAX:
        raise bad_request(f"The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}")
    for operation in operations:
        if not isinstance(operation, dict):
            raise bad_request("error decoding patch: an operation must be an object")
        document = _apply(document, operation)
    return document


def _apply(document: Any, operation: Mapping[str, Any]) -> Any:
    op, path = operation.get("op"), operation.get("path")
    parts = _pointer(path)
    path = str(path)
    if op in {"add", "replace", "test"} and "value" not in operation:
        if op != "test":
            raise bad_request(f"error decoding patch: {op} operation of {path} has no value")
        operation = {**operation, "value": None}
    match op:
        case "add" | "replace":
            return _set(document, parts, operation["value"], op, path)
        case "remove":
            return _set(document, parts, None, op, path)
        case "test":
            if not _same(_found(document, parts, path), operation["value"]):
                raise unprocessable_patch(f"testing value {path} failed: test failed")
            return document
        case "move" | "copy":
            source = _pointer(operation.get("from"))
            value = _resolve(document, source, str(operation.get("from")))
            if op == "move":
                document = _set(document, source, None, "remove", path)
            return _set(document, parts, value, "add", path)
        case _:
            raise bad_request(f"error decoding patch: unexpected kind of operation: {op!r}")


def _found(document: Any, parts: Sequence[str], path: str) -> Any:
    """The value that a ``test`` compares: None for a missing member; 422 for a missing parent."""
    if not parts:
        return document
    parent = _resolve(document, parts[:-1], path)
    if isinstance(parent, dict):
        return parent.get(parts[-1])
    return _resolve(parent, parts[-1:], path)


def _same(left: Any, right: Any) -> bool:
    """Compare as JSON does: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
