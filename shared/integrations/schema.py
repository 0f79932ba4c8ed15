"""Compares a document with the schema of its kind's CustomResourceDefinition: pure.

A path that the schema does not have can never be in an object: the API server prunes it. A template there
would be empty, and its pods would run uncounted.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from shared.cel.paths import ELEMENTS, Wanted
from shared.contracts.kube.conditions import ACTIVE, find_condition, message_of, reason_of
from shared.contracts.kube.kinds import Object
from shared.integrations.compiled import Compiled, PodSetPlan, Slot, WrappedPlan
from shared.integrations.errors import IntegrationError, Problem
from shared.integrations.pointers import tokens

SCHEMA_MISMATCH: Final = "SchemaMismatch"
"""Reason of the condition `Active` of a document that names what its kind's schema does not have. The
patcher, which may read definitions, writes it; every other process goes by it."""

_ROOTS: Final = ("spec", "status")
_TYPES: Final = {"integer": "int", "boolean": "bool", "string": "string", "number": "double"}
"""Type of a schema to that of an expression."""

_PLAIN: Final = re.compile(
    r"\s*(?:object\.)?((?:spec|status|item)(?:\.\??[A-Za-z_]\w*)+)(?:\.orValue\([^()]*\))?\s*\Z"
)
"""An expression that only reads a field."""

_TYPE_OF: Final = {bool: "boolean", int: "integer", float: "number", str: "string"}
_WITHIN: Final[dict[str, tuple[str, ...]]] = {
    "template": ("spec", "containers"),
    "placement": ("nodeSelector",),
}
"""What is in that which a document calls so: without it nothing would be counted, or placed."""

_ANY: Final[Object] = {"x-kubernetes-preserve-unknown-fields": True}


def mismatch_of(obj: Object) -> str | None:
    """What the status of an Integration object says of its present spec and the schema; None if nothing."""
    condition = find_condition(obj, ACTIVE)
    if condition is None or reason_of(condition) != SCHEMA_MISMATCH:
        return None
    if condition.get("observedGeneration") != obj["metadata"].get("generation", 1):
        return None
    return message_of(condition)


def schema_of(definition: Object, version: str) -> Object | None:
    """The schema of a version; None if the definition does not have that version."""
    for each in (definition.get("spec") or {}).get("versions") or []:
        if each.get("name") == version:
            schema: Object = (each.get("schema") or {}).get("openAPIV3Schema") or _ANY
            return schema
    return None


def check_schema(document: Compiled, definition: Object) -> None:
    """Raise `IntegrationError` with everything of which the schema says that no object has it."""
    kind, name = document.document.spec.kind, document.document.metadata["name"]
    schema = schema_of(definition, kind.version)
    if schema is None:
        reason = (
            f"CustomResourceDefinition {kind.plural}.{kind.group} has no version {kind.version!r}"
        )
        problem = Problem(field="spec.kind.version", line=None, reason=reason)
        raise IntegrationError(name, (problem,))
    problems = [
        Problem(field=field, line=line, reason=reason)
        for field, line, reason in (*_of_kind(document, definition), *_problems(document, schema))
    ]
    if problems:
        raise IntegrationError(name, tuple(dict.fromkeys(problems)))


_Found = tuple[str, int | None, str]


def _of_kind(document: Compiled, definition: Object) -> Iterator[_Found]:
    kind, spec = document.document.spec.kind, definition.get("spec") or {}
    defined = (spec.get("names") or {}).get("kind")
    if defined not in {None, kind.kind}:
        yield "spec.kind.kind", None, f"{kind.plural}.{kind.group} defines {defined}"
    if spec.get("scope") == "Cluster":
        yield "spec.kind", None, f"{kind.kind} has no namespace: only what is in one can wait"
    says = document.document.spec
    if says.status_subresource is not False and not (
        says.propagate or has_status(spec, kind.version)
    ):
        why = f"{kind.plural}.{kind.group} has no status subresource: users write the status, too"
        yield "spec.statusSubresource", None, f"{why}. Write false"


def has_status(spec: Object, version: str) -> bool:
    """Whether a version has a status subresource, so that whoever may change an object cannot write it."""
    named = (each for each in spec.get("versions") or [] if each.get("name") == version)
    return any("status" in (each.get("subresources") or {}) for each in named)


def _problems(document: Compiled, schema: Object) -> Iterator[_Found]:
    spec = document.document.spec
    webhook, groups = spec.webhook, spec.pod_groups
    for field, path, type_ in (
        ("spec.suspendField", spec.suspend_field, "boolean"),
        ("spec.webhook.managedByField", webhook and webhook.managed_by_field, "string"),
        ("spec.propagate", spec.propagate, ""),
        ("spec.podNames", spec.pod_names, "object"),
        ("spec.podGroups.leader", groups and groups.leader, ""),
    ):
        if not path:
            continue
        yield from _missing(schema, path.split("."), field, path)
        if type_:
            yield from _of_type(schema, path.split("."), field, type_)
        else:
            yield from _of_labels(_at(schema, path.split(".")), field, path)
    if not spec.suspend_field and spec.hold is None and not (spec.gate or spec.propagate):
        yield from _missing(schema, ["spec", "suspend"], "spec.suspendField", "spec.suspend")
    for slot in document.single.values():
        yield from _of_slot(slot, schema, _ANY)
    for index, refusal in enumerate(document.refusals):
        yield from _of_slot(refusal.when, schema, _ANY)
        if refusal.field[0] != "metadata":  # The schema says nothing of it.
            shown = ".".join(refusal.field)
            yield from _missing(schema, refusal.field, f"spec.refuse[{index}].field", shown)
    for slot in () if document.pod_groups is None else document.pod_groups.slots():
        yield from _of_slot(slot, schema, _ANY)
    for name, operations in document.patches.items():
        for index, operation in enumerate(operations):
            place = f"spec.{'' if name in {'hold', 'release', 'carry'} else 'stop.'}{name}[{index}]"
            if operation.op != "remove":
                there = tokens(operation.path)
                yield from _missing(schema, there, f"{place}.path", operation.path)
                if given := _TYPE_OF.get(type(operation.value)):
                    yield from _of_type(schema, there, f"{place}.value", given, given=True)
            for part in (operation.when, operation.value_from):
                if part is not None:
                    yield from _of_slot(part, schema, _ANY)
    for plan in document.pod_sets:
        yield from _of_pod_set(plan, schema)


def _of_pod_set(plan: PodSetPlan, schema: Object) -> Iterator[_Found]:
    here = f"spec.podSets[{plan.index}]"
    item: Object | None = _ANY
    if plan.each is not None:
        yield from _missing(schema, plan.each, f"{here}.forEach", ".".join(plan.each))
        item = _element(_at(schema, plan.each))
        if item is None and _at(schema, plan.each) is not None:
            yield f"{here}.forEach", None, f"{'.'.join(plan.each)} is neither a list nor a map"
    for field, path, in_item in (
        ("template", plan.template, plan.in_item),
        ("countField", plan.count_field, plan.count_in_item),
        ("placement", plan.placement, plan.placement_in_item),
        ("equalCount.field", plan.equal_count, plan.equal_count_in_item),
    ):
        if path is not None:
            root = (item or _ANY) if in_item else schema
            shown = ".".join(("item", *path) if in_item else path)
            yield from _missing(root, path, f"{here}.{field}", shown)
            if field in _WITHIN and _at(root, path) is not None:
                below = _WITHIN[field]
                yield from _missing(
                    root, (*path, *below), f"{here}.{field}", ".".join((shown, *below))
                )
            elif field not in _WITHIN:
                yield from _of_type(root, path, f"{here}.{field}", "integer")
    if plan.wrapped is not None:
        yield from _of_wrapped(plan.wrapped, item or _ANY, f"{here}.wrapped")
    for slot in (*plan.slots(), plan.template_from, plan.equal_count_when):
        if slot is not None:
            yield from _of_slot(slot, schema, item or _ANY)


def _of_wrapped(plan: WrappedPlan, item: Object, here: str) -> Iterator[_Found]:
    for field, path in (
        ("object", plan.object),
        ("declared.list", plan.declared),
        ("placements", plan.placements),
    ):
        if path is not None:
            yield from _missing(item, path, f"{here}.{field}", ".".join(("item", *path)))
    entry = None if plan.declared is None else _element(_at(item, plan.declared))
    for field, name, type_ in (
        ("path", plan.path, "string"),
        ("replicas", plan.replicas, "integer"),
    ):
        if entry is not None:
            yield from _missing(entry, [name], f"{here}.declared.{field}", name)
            yield from _of_type(entry, [name], f"{here}.declared.{field}", type_)


def _of_slot(slot: Slot, schema: Object, item: Object) -> Iterator[_Found]:
    """What an expression reads, and, if it only reads a field, of which type that is."""
    fields = slot.expression.wanted
    for root in _ROOTS:
        if root in fields:
            yield from _unread(slot, _at(schema, (root,)) or {}, fields[root], (root,))
    if "item" in fields:
        yield from _unread(slot, item, fields["item"], ("item",))
    parts = {name: below for name, below in (fields.get("object") or {}).items() if name in _ROOTS}
    yield from _unread(slot, schema, parts, ())
    if not slot.returns or (found := _PLAIN.match(slot.expression.text)) is None:
        return
    shown = found[1].replace("?", "")
    root, *path = shown.split(".")
    there = _at(item if root == "item" else _at(schema, (root,)) or {}, path) or {}
    is_ = _TYPES.get(str(there.get("type")))
    if there.get("x-kubernetes-int-or-string") or is_ is None or is_ in slot.returns:
        return
    reason = f"must return {' or '.join(slot.returns)}, but {shown} is {there['type']}"
    yield slot.field, slot.line, reason


def _unread(
    slot: Slot, schema: Object, fields: Wanted | None, path: tuple[str, ...]
) -> Iterator[_Found]:
    for name, below in (fields or {}).items():
        there = _element(schema) if name == ELEMENTS else _step(schema, name)
        if there is None:
            shown = ".".join((*path, name))
            yield slot.field, slot.line, f"the schema has no {shown}: the field is never there"
        else:
            yield from _unread(slot, there, below, path if name == ELEMENTS else (*path, name))


def _missing(schema: Object, path: Sequence[str], field: str, shown: str) -> Iterator[_Found]:
    if _at(schema, path) is None:
        known = next(p for p in range(len(path) - 1, -1, -1) if _at(schema, path[:p]) is not None)
        above = ".".join(path[:known]) or "the object"
        yield field, None, f"the schema has no {shown}: {above} has no {path[known]!r}"


def _of_type(
    schema: Object, path: Sequence[str], field: str, type_: str, *, given: bool = False
) -> Iterator[_Found]:
    """A field of another type than `type_`, which is `given` or needed."""
    there = _at(schema, path) or {}
    is_ = there.get("type")
    if is_ in {None, type_} or there.get("x-kubernetes-int-or-string"):
        return
    if given and (is_, type_) == ("number", "integer"):
        return
    shown = ".".join(path)
    if given:
        yield field, None, f"is {type_}, but {shown} is {is_}"
    else:
        yield field, None, f"must be {type_}, but {shown} is {is_}"


def _of_labels(template: Object | None, field: str, shown: str) -> Iterator[_Found]:
    """A template whose labels the API server would take away: its pods would name no queue."""
    there = template
    for step in ("metadata", "labels"):
        if there is None or _is_open(there):
            return
        there = (there.get("properties") or {}).get(step)
        if there is None:
            reason = (
                f"the schema has no {shown}.metadata.labels: without them its pods do not wait. Let it say "
                f"x-kubernetes-preserve-unknown-fields for {shown}.metadata"
            )
            yield field, None, reason


def _at(schema: Object, path: Sequence[str]) -> Object | None:
    """The schema at a path; None if there can be nothing."""
    there: Object | None = schema
    for step in path:
        if there is None:
            return None
        there = _step(there, step)
    return there


def _step(schema: Object, step: str) -> Object | None:
    properties = schema.get("properties") or {}
    if step in properties:
        below: Object = properties[step]
        return below
    if step == "metadata" and "properties" in schema:
        return _ANY
    if _is_open(schema):
        return _ANY
    of_each = schema.get("additionalProperties")
    if of_each:
        return of_each if isinstance(of_each, dict) else _ANY
    if step.isdigit() or step == "-":
        return _element(schema) if schema.get("type") == "array" else None
    return None


def _is_open(schema: Object) -> bool:
    """Whether the schema says nothing of what is inside."""
    return bool(
        schema.get("x-kubernetes-preserve-unknown-fields")
        or schema.get("x-kubernetes-embedded-resource")
        or not schema
    )


def _element(schema: Any) -> Object | None:
    """The schema of each item of a list or map; None if it is neither."""
    if not isinstance(schema, dict):
        return None
    if _is_open(schema):
        return _ANY
    of_each = schema.get("items") or schema.get("additionalProperties")
    if of_each is None or of_each is False:
        return None
    return of_each if isinstance(of_each, dict) else _ANY
