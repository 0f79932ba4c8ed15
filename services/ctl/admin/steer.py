"""`sluice stop` and `resume`: write the one field that stops a queue or a workload.

The fields are Kueue's: `stopPolicy` of a queue, where `Hold` keeps running workloads and `HoldAndDrain`
evicts them, and `active` of a Workload.
"""

from typing import Final

from services.ctl.connect.cluster import ClusterChoice, refused
from services.ctl.get.resources import resource_named
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import Kind
from shared.kube.port import Kube, KubeError, NotFoundError
from shared.runtime.command import CommandError

_KINDS: Final = {
    "clusterqueues": kinds.CLUSTER_QUEUE,
    "localqueues": kinds.LOCAL_QUEUE,
    "workloads": kinds.WORKLOAD,
}


async def steer(
    word: str,
    name: str,
    *,
    namespace: str,
    stop: bool,
    keep_running: bool,
    cluster: ClusterChoice,
) -> str:
    """Stop or resume one object; return a sentence. Raises `CommandError`."""
    resource = resource_named(word)
    kind = _KINDS.get(resource.name) if resource is not None else None
    if kind is None:
        raise CommandError(
            word, "cannot be stopped", hint=f"what can: {', '.join(k[:-1] for k in _KINDS)}"
        )
    if keep_running and kind is kinds.WORKLOAD:
        raise CommandError("--keep-already-running", "is for queues: a workload runs or does not")
    if kind.namespaced and "/" in name:
        namespace, _, name = name.partition("/")  # As the commands that look have it.
    kube = cluster.open()
    place = namespace if kind.namespaced else None
    try:
        return await write_steering_field(
            kube, kind, place, name, stop=stop, keep_running=keep_running
        )
    finally:
        await kube.close()


async def write_steering_field(
    kube: Kube, kind: Kind, namespace: str | None, name: str, *, stop: bool, keep_running: bool
) -> str:
    """Write the field through `kube`; a workload may be named by its job."""
    title = f"{kind.kind.lower()} {f'{namespace}/' if namespace else ''}{name}"
    try:
        obj = await _fetch(kube, kind, namespace, name)
        field, value = _desired(kind, stop=stop, keep_running=keep_running)
        real = str(obj["metadata"]["name"])
        title = title.replace(name, real) if real != name else title
        if _has_value(obj, field, value):
            return (
                f"{title} is {'stopped' if stop else 'active'} already ({field}: {_shown(value)})"
            )
        # The uid makes the API server refuse the patch for a new object of the same name.
        metadata = {"uid": obj["metadata"]["uid"]}
        await kube.patch(kind, namespace, real, {"metadata": metadata, "spec": {field: value}})
    except KubeError as error:
        raise _with_list(refused(title, error), kind, error) from error
    return f"{title} {'stopped' if stop else 'resumed'} ({field}: {_shown(value)})"


def _with_list(refusal: CommandError, kind: Kind, error: KubeError) -> CommandError:
    if isinstance(error, NotFoundError):
        more = " -A" if kind.namespaced else ""
        refusal.hint = f"`sluice get {kind.plural}{more}` lists what there is"
    return refusal


async def _fetch(kube: Kube, kind: Kind, namespace: str | None, name: str) -> Body:
    try:
        return await kube.get(kind, namespace, name)
    except NotFoundError:
        if kind is not kinds.WORKLOAD:
            raise
        listing = await kube.list(kind, namespace=namespace)
        for obj in listing.items:
            owners = obj["metadata"].get("ownerReferences") or []
            if any(owner.get("name") == name for owner in owners):
                return obj
        raise


def _desired(kind: Kind, *, stop: bool, keep_running: bool) -> tuple[str, object]:
    if kind is kinds.WORKLOAD:
        return "active", not stop
    if not stop:
        return "stopPolicy", "None"
    return "stopPolicy", "Hold" if keep_running else "HoldAndDrain"


def _shown(value: object) -> str:
    """As YAML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _has_value(obj: Body, field: str, value: object) -> bool:
    default: object = True if field == "active" else "None"
    return bool((obj.get("spec") or {}).get(field, default) == value)
