"""Pods of objects that are inside an object: each has the pods that its own kind's Integration reads. Pure.

Of a kind without an Integration, and for the order in which flavors are written, the object that wraps it
says where the pod templates are, by paths that are data.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from shared.contracts.kube.kinds import Kind, Object
from shared.integrations.compiled import WrappedPlan
from shared.integrations.errors import ObjectError
from shared.integrations.pointers import Tokens, found
from shared.integrations.related.paths import PathError, follow

ITEMS_MAX: Final = 256
"""How many objects one may wrap; those beyond are not read. Most have no pods."""


_MAKE_PODS: Final = frozenset(
    {
        ("", "ReplicationController"),
        ("apps", "ReplicaSet"),
        ("apps", "DaemonSet"),
        ("batch", "CronJob"),
        ("ray.io", "RayCronJob"),
        ("sparkoperator.k8s.io", "ScheduledSparkApplication"),
        ("argoproj.io", "CronWorkflow"),
        ("argoproj.io", "Rollout"),
        ("tekton.dev", "TaskRun"),
    }
)
"""Group and kind of what makes pods as it likes, and has no Integration: on each node, at each hour, or
from other fields than a pod template."""


class Reader(Protocol):
    """What is asked of the Integration of a wrapped object."""

    kind: Kind

    @property
    def looks_elsewhere(self) -> bool:
        """True if the pods of its objects are in others again."""

    def matches(self, obj: Object) -> bool:
        """Whether the object makes pods that count."""

    def counted(self, obj: Object) -> list[tuple[Tokens, Object]]:
        """Path of the pod template and pod set, of each pod set that counts. Raises `ObjectError`."""

    def refusals(self, obj: Object) -> list[str]:
        """Why the object is refused."""


ReaderOf = Callable[[str, str], Reader | None]
"""Group and kind to the Integration of the kind."""


class WrappedPods(NamedTuple):
    """One pod set of a wrapped object."""

    template: Object
    pods: int
    place: int | None
    """Its place in the list that gets what flavors choose; None: that list is not about it."""


class _Declared(NamedTuple):
    steps: Tokens
    template: Object
    pods: int


def pods_inside(item: Any, plan: WrappedPlan, where: str, reader_of: ReaderOf) -> list[WrappedPods]:
    """The pod sets of one wrapped object; `where`: path of the item, for messages.

    Raises `ObjectError` with path and cause.
    """
    inner = _inner(item, plan, where)
    known = dict(_known(inner, plan, where, reader_of))
    declared = list(_declared(item, plan, where))
    if not declared:
        return [_of(pod_set, place) for place, pod_set in enumerate(known.values())]
    own = []
    for place, one in enumerate(declared):
        pod_set = known.pop(one.steps[len(plan.object) :], None)
        own.append(
            WrappedPods(one.template, one.pods, place)
            if pod_set is None
            else WrappedPods(pod_set["template"], max(pod_set["count"], one.pods), place)
        )
    # What its controller makes beside what was declared.
    return [*own, *(_of(pod_set, None) for pod_set in known.values())]


def refusals_inside(item: Any, plan: WrappedPlan, where: str, reader_of: ReaderOf) -> Iterator[str]:
    """Yield why the object in an item cannot be counted or stopped: path, value and cause."""
    given = found(item, plan.object)
    inner = _as_made(given) if isinstance(given, dict) else {}
    reader = _reader(inner, reader_of)
    if reader is None or _why_unread(inner, reader) is not None:
        return  # That is a fault of the object already.
    if reader.matches(inner):
        for refusal in reader.refusals(inner):
            yield f"{_path(where, plan.object)}.{refusal}"


def _of(pod_set: Object, place: int | None) -> WrappedPods:
    return WrappedPods(pod_set["template"], pod_set["count"], place)


def _inner(item: Any, plan: WrappedPlan, where: str) -> Object:
    inner = found(item, plan.object)
    if not isinstance(inner, dict):
        raise ObjectError(f"{_path(where, plan.object)}: must be an object")
    return _as_made(inner)


def _as_made(inner: Object) -> Object:
    """What is to be made has no status yet, and no owner but its wrapper, whatever is written into it."""
    made = {key: value for key, value in inner.items() if key != "status"}
    metadata = made.get("metadata")
    if isinstance(metadata, dict) and "ownerReferences" in metadata:
        kept = {key: value for key, value in metadata.items() if key != "ownerReferences"}
        made["metadata"] = kept
    return made


def _reader(inner: Object, reader_of: ReaderOf) -> Reader | None:
    """The Integration of a wrapped object; None for a kind without one."""
    kind = inner.get("kind")
    return reader_of(_group(inner), kind) if isinstance(kind, str) else None


def _group(inner: Object) -> str:
    version = inner.get("apiVersion")
    return version.rpartition("/")[0] if isinstance(version, str) else ""


def _why_unread(inner: Object, reader: Reader | None) -> str | None:
    """Why the pods of a wrapped object cannot be counted, whatever is declared: field, value and cause."""
    kind, version = inner.get("kind"), inner.get("apiVersion")
    if reader is None:
        if not isinstance(kind, str) or (_group(inner), kind) not in _MAKE_PODS:
            return None
        return (
            f"kind: {kind!r}: its pods are not counted inside another object, whatever podSets says of them: "
            "write a kind that is, such as Job or Deployment"
        )
    if reader.kind.api_version != version:
        return (
            f"apiVersion: {version!r}: its pods are read only in version {reader.kind.api_version}: "
            "write that"
        )
    if reader.looks_elsewhere:
        return (
            f"kind: {kind!r}: its pods are not in it but in other objects, which is not read inside another "
            "one; give it a queue of its own instead"
        )
    return None


def _known(
    inner: Object, plan: WrappedPlan, where: str, reader_of: ReaderOf
) -> Iterator[tuple[Tokens, Object]]:
    reader = _reader(inner, reader_of)
    here = _path(where, plan.object)
    if (why := _why_unread(inner, reader)) is not None:
        raise ObjectError(f"{here}.{why}")
    if reader is None:
        return
    try:
        yield from reader.counted(inner)
    except ObjectError as error:
        raise ObjectError(f"{here}: {error}") from error


def _declared(item: Object, plan: WrappedPlan, where: str) -> Iterator[_Declared]:
    if plan.declared is None or (listed := found(item, plan.declared)) is None:
        return
    here = _path(where, plan.declared)
    if not isinstance(listed, list):
        raise ObjectError(f"{here}: must be a list")
    paths: set[Tokens] = set()
    for place, one in enumerate(listed):
        at = f"{here}[{place}]"
        if not isinstance(one, dict):
            raise ObjectError(f"{at}: must be a map")
        steps, template = _followed(item, one.get(plan.path), plan, f"{at}.{plan.path}")
        if steps in paths:
            raise ObjectError(f"{at}.{plan.path}: {one[plan.path]!r}: is said twice")
        paths.add(steps)
        pods = one.get(plan.replicas)
        if pods is not None and (type(pods) is not int or pods < 0):
            raise ObjectError(f"{at}.{plan.replicas}: {pods!r}: must be a number of pods")
        yield _Declared(steps, template, 1 if pods is None else pods)


def _followed(item: Object, path: Any, plan: WrappedPlan, where: str) -> tuple[Tokens, Object]:
    try:
        steps, value = follow(item, path)
    except PathError as error:
        raise ObjectError(f"{where}: {error}") from error
    if steps[: len(plan.object)] != plan.object:
        raise ObjectError(f"{where}: {path!r}: must begin with {'.'.join(plan.object)}")
    if not isinstance(value.get("spec"), dict):
        raise ObjectError(f"{where}: {path!r}: is no pod template: it has no spec")
    return steps, {key: value[key] for key in ("metadata", "spec") if key in value}


def _path(where: str, path: Tokens) -> str:
    return ".".join((where, *path))


def shown_item(each: Tokens, key: str) -> str:
    """`spec.components[0]`."""
    return f"{'.'.join(each)}[{key}]" if key.isdigit() else ".".join((*each, key))
