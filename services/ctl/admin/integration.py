"""`sluice integration`: shows what an Integration document makes of an object, without a cluster."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from services.classifier.projection.pods.pod_templates import FieldError, mapping, mappings
from services.classifier.projection.pods.requests import RequestsError, resolve_pod_sets
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL, QUEUE
from shared.contracts.messages.workloads import Finish
from shared.integrations import (
    INTEGRATIONS,
    SHIPPED,
    Integration,
    IntegrationError,
    ObjectError,
    PodSetInfo,
    opted_documents,
    queue_of,
)
from shared.integrations.document import parse
from shared.integrations.groups.marks import annotations_for, group_marks, templates_of
from shared.integrations.pointers import tokens, without, written
from shared.runtime.command import CommandError, Exit, unreadable

SHOWN_LABEL: Final = {"example.com/flavor": "shown"}
SHOWN_TOLERATION: Final = {"key": "example.com/flavor", "operator": "Exists"}
"""What a flavor would add to pod templates, in the release that is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What a document makes of one object."""

    kind: str
    name: str
    recognised: str
    """Empty if it is, else why not."""

    refused: list[str]
    """Why the webhook refuses it, if it has a queue."""

    queue: str
    held: bool
    active: bool
    ready: bool | None
    finished: str
    """`no`, or the result."""

    pod_sets: list[dict[str, Any]]
    reclaimable: dict[str, int]
    patches: dict[str, list[dict[str, Any]] | None]
    problems: list[str]
    deletes: bool = False
    """To stop it is to delete it."""

    templates: dict[str, dict[str, Any]] | None = None
    """If its pods wait instead: path of each pod template to the labels and annotations that it gets."""

    @property
    def ok(self) -> bool:
        """It is read, and nothing fails."""
        return not (self.recognised or self.refused or self.problems)


def load_integrations(file: Path) -> list[Integration]:
    """The Integration documents of a file, at least one. Raises `CommandError`."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(str(file), unreadable(error)) from error
    try:
        found = [Integration.load(document, lines) for document, lines in parse(text)]
    except IntegrationError as error:
        raise CommandError(str(file), str(error)) from error
    if not found:
        raise CommandError(str(file), "holds no Integration")
    return found


def check_definition(
    integrations: list[Integration], definition: dict[str, Any], *, file: Path, source: str
) -> None:
    """Check the documents of that kind against its schema. Raises `CommandError`."""
    spec = definition.get("spec") or {}
    kind = (spec.get("group"), (spec.get("names") or {}).get("kind"))
    of_kind = [one for one in integrations if (one.kind.group, one.kind.kind) == kind]
    if not of_kind:
        raise CommandError(source, f"defines {kind[1]}, of which no document of {file} speaks")
    for integration in of_kind:
        try:
            integration.check_schema(definition)
        except IntegrationError as error:
            raise CommandError(str(file), str(error)) from error


def with_metadata(file: Path, obj: dict[str, Any]) -> dict[str, Any]:
    """The object, checked to have metadata as an API server returns them. Raises `CommandError`."""
    try:
        metadata = mapping(obj.get("metadata"), "metadata")
        mapping(metadata.get("labels"), "metadata.labels")
        mapping(metadata.get("annotations"), "metadata.annotations")
        list(mappings(metadata.get("ownerReferences"), "metadata.ownerReferences"))
    except FieldError as error:
        raise CommandError(str(file), str(error)) from error
    return {**obj, "metadata": metadata}


def finding_of(integrations: list[Integration], obj: dict[str, Any]) -> CheckResult:
    """What the document for the object's kind makes of it. Raises `CommandError` if there is none."""
    group = str(obj.get("apiVersion") or "").rpartition("/")[0]
    of_kind = [
        one for one in integrations if (one.kind.group, one.kind.kind) == (group, obj.get("kind"))
    ]
    metadata = obj.get("metadata") or {}
    shown = f"{metadata.get('namespace') or 'default'}/{metadata.get('name') or ''}"
    if not of_kind:
        raise CommandError(
            f"{obj.get('kind')} {shown}",
            f"is no {described(integrations[0].kind)}, of which the document speaks",
            status=Exit.FAILED,
        )
    integration = of_kind[0].among(partial(_inside, integrations))
    # An object that is not created yet has no uid, but the patches test it.
    obj = {**obj, "metadata": {"uid": "(its uid)", **metadata}}
    why = ""
    if SHIPPED.has_waiting_controller(obj, integration.kind):
        why = "its controller made it, and waits for it"
    elif not integration.matches(obj):
        why = "`match` does not hold of it"
    finish = integration.finish(obj)
    problems = list(integration.problems(obj))
    pod_sets, patches = _read(integration, obj, problems)
    templates = _templates(integration, obj, problems) if integration.propagates else None
    return CheckResult(
        kind=str(obj["kind"]),
        name=shown,
        recognised=why,
        refused=integration.refusals(obj),
        queue=queue_of(obj),
        held=integration.held(obj),
        active=integration.active(obj),
        ready=integration.ready(obj),
        finished=_finished(finish),
        deletes=integration.deletes,
        pod_sets=pod_sets,
        reclaimable=integration.reclaimable(obj),
        patches=patches if templates is None else {},
        problems=problems,
        templates=templates,
    )


def _inside(integrations: list[Integration], group: str, kind: str) -> Integration | None:
    """The Integration of an object inside of another: one of the file, or one that ships."""
    named = (one for one in integrations if (one.kind.group, one.kind.kind) == (group, kind))
    return next(named, None) or SHIPPED.inside(group, kind)


def _finished(finish: Finish | None) -> str:
    if finish is None:
        return "no"
    result = "succeeded" if finish.success else "failed"
    return f"{result}: {finish.message}" if finish.message else result


def _read(
    integration: Integration, obj: dict[str, Any], problems: list[str]
) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]] | None]]:
    """Pod sets with the requests of a pod, and patches; problems are appended to `problems`."""
    try:
        raw = integration.pod_sets(obj)
    except ObjectError:
        return [], {}  # `problems` of the integration reports it.
    try:
        asked = resolve_pod_sets(raw, limit_ranges=[], runtime_class=lambda _name: {})
    except RequestsError as error:
        problems.append(str(error))
        asked = list(error.pod_sets)
    infos = tuple(
        PodSetInfo(
            name=pod_set["name"],
            count=pod_set["count"],
            node_selector=SHOWN_LABEL,
            tolerations=(SHOWN_TOLERATION,),
        )
        for pod_set in raw
    )
    patches: dict[str, list[dict[str, Any]] | None] = {}
    try:
        patches["hold"] = hold = integration.hold(obj)
        patches["release"] = integration.release(_after(obj, hold), infos)
        patches["stop"] = integration.stop(obj)
    except ObjectError as error:
        problems.append(str(error))
    shown = [
        {
            "name": one.name,
            "count": one.count,
            "minCount": one.min_count,
            "requests": dict(one.requests),
        }
        for one in asked
    ]
    return shown, patches


def _after(obj: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """The object as the patch that holds it makes it."""
    for operation in patch:
        path = tokens(operation["path"])
        if operation["op"] == "remove":
            obj = without(obj, path)
        elif operation["op"] != "test" and path[-1] != "-":
            obj = written(obj, path, operation["value"])
    return obj


def _templates(
    integration: Integration, obj: dict[str, Any], problems: list[str]
) -> dict[str, dict[str, Any]]:
    """What the webhook writes into the pod templates; problems are appended to `problems`."""
    [pods] = (Integration.load(document) for document in opted_documents(("pod",)))
    found: dict[str, dict[str, Any]] = {}
    try:
        labels, annotations = group_marks(obj, integration, pods.group)
    except ObjectError as error:
        problems.append(str(error))
        return found
    own = obj["metadata"].get("labels") or {}
    queue = {key: own[key] for key in (QUEUE, PRIORITY_CLASS_LABEL) if key in own}
    for path in templates_of(obj, integration):
        more = annotations_for(path, integration, None)
        found[".".join(path)] = {
            "labels": {**queue, **labels},
            "annotations": {**more, **annotations},
        }
    return found


def check_lines(source: str, found: CheckResult) -> Iterator[str]:
    """The result in words."""
    yield f"{source}: {found.kind} {found.name}"
    waits = f"yes, in queue {found.queue}" if found.queue else "yes, but it names no queue"
    yield _line("recognised", f"no: {found.recognised}" if found.recognised else waits)
    for refusal in found.refused:
        yield _line("refused", refusal)
    if found.templates is None:
        yield _line("held", _yes(found.held))
        yield _line("active", _yes(found.active))
        yield _line("ready", "the kind cannot tell" if found.ready is None else _yes(found.ready))
        yield _line("finished", found.finished)
    else:
        yield _line("held", "never: its pods wait instead")
    for pod_set in found.pod_sets:
        asked = ", ".join(f"{name}={value}" for name, value in pod_set["requests"].items())
        least = "" if pod_set["minCount"] is None else f", at least {pod_set['minCount']}"
        back = found.reclaimable.get(pod_set["name"])
        done = "" if back is None else f", {back} of them done"
        yield _line(
            f"pod set {pod_set['name']}",
            f"{pod_set['count']} x ({asked or 'nothing'}){least}{done}",
        )
    for path, marks in (found.templates or {}).items():
        yield _line("pods get", f"{path}: {json.dumps(marks)}")
    for name, patch in found.patches.items():
        if patch is None:
            never = "never: it cannot be stopped and started again"
            yield _line(name, "it is deleted" if found.deletes else never)
            continue
        for place, operation in enumerate(patch):
            yield _line(name if place == 0 else "", json.dumps(operation))
    for problem in found.problems:
        yield _line("problem", problem)


def _line(name: str, text: str) -> str:
    return f"  {name:<16} {text}"


def list_lines() -> Iterator[str]:
    """A line for each kind that ships."""
    names = max(len(integration.name) for integration in INTEGRATIONS)
    kinds = max(len(described(integration.kind)) for integration in INTEGRATIONS)
    yield f"{'NAME':<{names}} {'KIND':<{kinds}} STOPPED AND STARTED AGAIN"
    for integration in INTEGRATIONS:
        stop = integration.document.spec.stop
        can = "no" if stop is not None and stop.how == "Never" else "yes"
        yield f"{integration.name:<{names}} {described(integration.kind):<{kinds}} {can}"


def described(kind: Kind) -> str:
    """For instance ``Job of batch/v1``."""
    return f"{kind.kind} of {kind.api_version}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
