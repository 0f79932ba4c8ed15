"""`sluice integration init`: a first Integration document, from the schema of a kind. Pure.

What the schema shows is written: pod templates, how many of each, where it is suspended. What it cannot show
is asked in comments.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from shared.contracts.kube.kinds import CUSTOM_RESOURCE_DEFINITION, Object
from shared.integrations.schema import has_status, schema_of
from shared.runtime.command import CommandError

_DEPTH_MAX: Final = 8
"""Steps from the spec to a pod template: a template has templates of volumes inside."""

_COUNTS: Final = ("replicas", "parallelism", "instances", "numNodes", "count", "size")
"""Names of fields that say how many pods there are, the most telling first."""

_ENDED: Final = ("Succeeded", "Completed", "Complete", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    """A pod template of the schema."""

    each: tuple[str, ...] | None
    """The list or map that it is in; None if it is in none."""

    path: tuple[str, ...]
    """From the object, or from the item."""

    beside: Object
    """Properties of the map that has it."""

    above: tuple[str, ...]
    is_list: bool
    item: Object


def draft(definition: Object, source: str) -> str:
    """The document as YAML. Raises `CommandError` unless it is the definition of a namespaced kind."""
    spec = definition.get("spec")
    if definition.get("kind") != CUSTOM_RESOURCE_DEFINITION.kind or not isinstance(spec, dict):
        raise CommandError(
            source, f"is no {CUSTOM_RESOURCE_DEFINITION.kind}, but {definition.get('kind')}"
        )
    names = spec.get("names") or {}
    if spec.get("scope") == "Cluster":
        raise CommandError(
            source, f"{names.get('kind')} has no namespace: only what is in one can wait"
        )
    served = [one for one in spec.get("versions") or [] if one.get("served")]
    if not served or not names.get("kind"):
        raise CommandError(source, "serves no version")
    version = next((one for one in served if one.get("storage")), served[-1])["name"]
    schema = schema_of(definition, version) or {}
    group, plural, kind = spec.get("group"), names.get("plural"), names["kind"]
    head = [
        f"# A first document, made of the schema of {kind}. Try it on an object:",
        "#   sluice integration try FILE --object OBJECT.yaml",
        "apiVersion: sluicegate.dev/v1alpha1",
        "kind: Integration",
        "metadata:",
        f"  name: {plural}.{group}",
        "spec:",
        f"  kind: {{group: {group}, version: {version}, kind: {kind}, plural: {plural}}}",
    ]
    body = [*_suspend(schema), *_subresource(spec, version)]
    body += [*_status(schema), *_pod_sets(schema, str(plural), str(group)), *_webhook(schema)]
    return "\n".join([*head, *body]) + "\n"


def _properties(schema: Any, *path: str) -> Object:
    for step in path:
        schema = (schema.get("properties") or {}).get(step) or {}
    found: Object = schema.get("properties") or {}
    return found


def _named(schema: Object, name: str, type_: str) -> str:
    """The path of a field of the spec, or of one map in it; empty if there is none."""
    spec = _properties(schema, "spec")
    if spec.get(name, {}).get("type") == type_:
        return f"spec.{name}"
    for field, below in spec.items():
        if _properties(below).get(name, {}).get("type") == type_:
            return f"spec.{field}.{name}"
    return ""


def _suspend(schema: Object) -> Iterator[str]:
    field = _named(schema, "suspend", "boolean")
    if not field:
        yield "  # No field `suspend` was found. Say how one is made to wait: held, hold and release. Or let"
        yield "  # its pods wait instead, which its controller makes of a template: propagate, podGroups."
    elif field != "spec.suspend":
        yield f"  suspendField: {field}"


def _subresource(spec: Object, version: str) -> Iterator[str]:
    if not has_status(spec, version):
        yield "  # Users can write its status: its end is believed when its pods are gone."
        yield "  statusSubresource: false"
    else:
        yield "  # Remove this only if its status counts each pod until that is gone, also after its end."
        yield "  podsOutliveStatus: true"


def _webhook(schema: Object) -> Iterator[str]:
    field = _named(schema, "managedBy", "string")
    if field:
        yield "  # So that its status comes home from other clusters, say the name of its own controller:"
        yield "  # webhook:"
        yield "  #   ownController: …"
        if field != "spec.managedBy":
            yield f"  #   managedByField: {field}"


def _status(schema: Object) -> Iterator[str]:
    status = _properties(schema, "status")
    if status.get("active", {}).get("type") == "integer":
        yield "  active: status.?active.orValue(0) > 0"
    else:
        yield "  # Its quota is in use while it has a status and is not held. If pods end later: `active`."
    for field in ("phase", "state"):
        values = status.get(field, {}).get("enum") or []
        good = [value for value in values if value in _ENDED[:-1]]
        if good and "conditions" not in status:
            yield "  finish:"
            yield f'    success: status.?{field}.orValue("") == "{good[0]}"'
            if _ENDED[-1] in values:
                yield f'    failure: status.?{field}.orValue("") == "{_ENDED[-1]}"'
            return
    if "conditions" in status:
        yield "  # It has ended when a condition Complete, Completed, Succeeded or Failed is True, unless"
        yield "  # `finish` says otherwise."
    else:
        yield "  # No conditions were found in its status. Say `finish`: when it has ended, and how."


def _pod_sets(schema: Object, plural: str, group: str) -> Iterator[str]:
    spec = (schema.get("properties") or {}).get("spec") or {}
    templates = list(_templates(spec, ("spec",), _DEPTH_MAX))
    yield "  podSets:"
    for template in templates:
        yield from _pod_set(template, several=len(templates) > 1)
    if not templates:
        yield "  # No pod template was found. Say what one asks for; here it takes one place."
        yield f'  - requests: {{{group}/{plural}: "1"}}'


def _pod_set(template: _Template, *, several: bool) -> Iterator[str]:
    lines = []
    root = ".".join(template.above)
    if template.each is not None:
        lines.append(f"forEach: {'.'.join(template.each)}")
        root = ".".join(("item", *template.above))
        properties = _properties(template.item)
        if template.is_list and "name" not in properties:
            named = next((p for p in properties if p.lower().endswith("name")), None)
            lines.append(f"nameFrom: item.{named or '…'}.lowerAscii()")
    elif several:
        lines.append(f"name: {_name(template.path)}")
    lines.append(
        f"template: {'.'.join(template.path if template.each is None else ('item', *template.path))}"
    )
    count = next((n for n in _COUNTS if template.beside.get(n, {}).get("type") == "integer"), None)
    if count:
        lines.append(f"count: {root}.?{count}.orValue(1)")
    for place, line in enumerate(lines):
        yield f"  {'- ' if place == 0 else '  '}{line}"


def _name(path: tuple[str, ...]) -> str:
    """What a pod set is called: by its template, `leaderTemplate`, or by what has it."""
    own = re.sub("(pod)?template(spec)?$", "", path[-1].lower())
    return own or (path[-2].lower() if len(path) > 1 else "main")


def _templates(
    schema: Object,
    path: tuple[str, ...],
    depth: int,
    each: tuple[str, ...] | None = None,
    item: Object | None = None,
    *,
    is_list: bool = False,
) -> Iterator[_Template]:
    """The pod templates below a field, at most one list or map deep."""
    for name, below in (schema.get("properties") or {}).items():
        if not isinstance(below, dict) or depth == 0:
            continue
        if _is_template(name, below):
            yield _Template(
                each=each,
                path=(*path, name),
                beside=schema["properties"],
                above=path,
                is_list=is_list,
                item=item or {},
            )
            continue
        of_each = below.get("items") or below.get("additionalProperties")
        if isinstance(of_each, dict) and each is None:
            yield from _templates(
                of_each, (), depth - 1, (*path, name), of_each, is_list="items" in below
            )
        else:
            yield from _templates(below, (*path, name), depth - 1, each, item, is_list=is_list)


def _is_template(name: str, schema: Object) -> bool:
    """Whether a field is a pod template: what has a pod spec, or is left open and called so."""
    if _properties(schema, "spec").get("containers", {}).get("type") == "array":
        return True
    is_open = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    return is_open and name.lower().endswith("template") and not schema.get("properties")
