"""What happened to a workload in about ten lines, in words, without repetitions."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from shared.contracts.kube.ages import duration
from shared.contracts.kube.names import ORIGIN

MessageBody = dict[str, Any]
"""The body of a message as JSON."""

Describe = Callable[[MessageBody], str]


def story(events: Iterable[tuple[datetime, str, MessageBody]]) -> Iterator[str]:
    """A line for each event that changes how the workload stands, as a command prints it."""
    first: datetime | None = None
    for at, _, text in descriptions(events):
        first = first or at
        since = f"+{duration((at - first).total_seconds())}"
        yield f"{at.isoformat(sep=' ', timespec='seconds')}  {since:<7}  {text}"


def descriptions(
    events: Iterable[tuple[datetime, str, MessageBody]],
) -> Iterator[tuple[datetime, str, str]]:
    """Time, kind and words of each event that changes how the workload stands.

    Each event: its time, its kind as in `sluice history --all` (`void` for a void decision), and its body.
    """
    last: dict[tuple[str, str, str], str] = {}
    spokes: set[str] = set()
    for at, what, body in events:
        cluster = str(body.get("cluster") or "")
        if what == "workload" and _is_copy(body):
            spokes.add(cluster)
        text = _DESCRIPTIONS.get(what, _nothing)(body)
        about = (what, cluster, str(body.get("check") or body.get("name") or ""))
        if not text or last.get(about) == text:
            continue
        last[about] = text
        if what == "admission":  # What comes of another decision is told, also in the same words.
            last.pop(("outcome", *about[1:]), None)
        # Orders to spokes, too, are messages of the hub, and say which spoke they mean.
        yield at, what, f"copy on spoke {cluster}: {text}" if cluster in spokes else text


def _is_copy(workload: MessageBody) -> bool:
    """Whether the state of a workload is that of a copy, which the hub has made on a spoke."""
    return ORIGIN in (workload.get("labels") or {})


def _nothing(_body: MessageBody) -> str:
    return ""


def _workload(body: MessageBody) -> str:
    match body.get("phase"):
        case "waiting" if body.get("inadmissible"):
            return f"cannot be admitted: {body['inadmissible']}"
        case "waiting":
            where = f"LocalQueue {body['queue']}" if body.get("queue") else "no queue"
            class_ = f" ({body['priority_class']})" if body.get("priority_class") else ""
            asked = f", asks {_asked(body)}" if _asked(body) else ""
            return f"waits in {where}, priority {body.get('priority', 0)}{class_}{asked}"
        case "running":
            return f"runs{_PODS.get(body.get('pods_ready'), '')}"
        case "finished":
            finish = body.get("finish") or {}
            how = "succeeded" if finish.get("success") else "failed"
            how += f": {finish['message']}" if finish.get("message") else ""
            return f"{how}; its pods run still" if body.get("pods_active") else how
        case "gone":
            return "is deleted"
        case phase:
            return str(phase or "")


_PODS: Final[dict[Any, str]] = {
    True: "; its pods are ready",
    False: "; not all of its pods are ready",
}
"""By `WorkloadState.pods_ready`. Unknown for kinds without that condition."""


def _asked(body: MessageBody) -> str:
    return "; ".join(
        f"{pod_set.get('count')} x {_pairs(pod_set.get('requests') or {})}"
        for pod_set in body.get("pod_sets") or []
    )


def _admission(body: MessageBody) -> str:
    where = f" by ClusterQueue {body['cluster_queue']}" if body.get("cluster_queue") else ""
    why = ": ".join(filter(None, (body.get("reason"), body.get("message"))))
    match body.get("state"):
        case "waiting":
            return f"is not admitted: {why}" if why else ""
        case "reserved":
            return f"gets quota{where}, and waits for its admission checks"
        case "admitted":
            given = "; ".join(_pairs(p.get("usage") or {}) for p in body.get("pod_sets") or [])
            spoke = f", to run on spoke {body['spoke']}" if body.get("spoke") else ""
            return f"is admitted{where}{spoke}" + (f": {given}" if given else "")
        case "evicted":
            by = f" for {body['preempted_by']}" if body.get("preempted_by") else ""
            return f"is evicted{by}: {why}"
        case "released":
            return f"gives its quota back{f': {why}' if why else ''}"
        case state:
            return str(state or "")


def _void(body: MessageBody) -> str:
    """A void decision: its leader had been replaced, and no service carries it out."""
    return f"void, its leader was replaced: {text}" if (text := _admission(body)) else ""


def _check(body: MessageBody) -> str:
    return with_message(f"admission check {body.get('check')} is {body.get('state')}", body)


def _outcome(body: MessageBody) -> str:
    if body.get("result") != "applied":
        return with_message(f"the cluster: {body.get('action')} is {body.get('result')}", body)
    return "its job is started" if body.get("action") == "release" else ""


def _dispatch(body: MessageBody) -> str:
    return f"spoke {body.get('spoke')}: {body.get('state')}"


def _host(body: MessageBody) -> str:
    where = f" on {body['host']}" if body.get("host") else ""
    text = f"TaskRun {body.get('name')}: {body.get('platform')} is {body.get('state')}{where}"
    return with_message(text, body)


_DESCRIPTIONS: Final[dict[str, Describe]] = {
    "workload": _workload,
    "admission": _admission,
    "void": _void,
    "check": _check,
    "dispatch": _dispatch,
    "outcome": _outcome,
    "host": _host,
}


def with_message(text: str, body: MessageBody) -> str:
    """`text` and the message that `body` has, if it has one."""
    return f"{text}: {body['message']}" if body.get("message") else text


def _pairs(amounts: MessageBody) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in sorted(amounts.items()))
