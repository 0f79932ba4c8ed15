"""Borders to a cluster: what an API server answers, and the objects of each kind that a service reads."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from hypothesis import strategies as st

from services.classifier.projection.projector import Projector
from services.quota.decider import Decider
from services.quota.settings import QuotaSettings
from services.watcher.observe import observed, tombstone, truncated
from shared.bus.follow import dispatch
from shared.bus.port import Entry
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.observed import Observed, Synced
from shared.kube.answers import decoded, encoded, error_from
from shared.kube.port import KubeError
from shared.testing.builders import observed_object, workload
from tests.fuzz import objects
from tests.fuzz.border import Border
from tests.fuzz.messages import NOON, addressed
from tests.fuzz.values import broken, texts, written

_STATUS: Final = {
    "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m", "reason": "Invalid",
    "details": {"name": "a", "causes": [{"message": "c", "field": "spec"}], "retryAfterSeconds": 1},
    "code": 422,
}  # fmt: skip


def observations(kind: Kind, *, cluster: str = "hub") -> st.SearchStrategy[Entry]:
    """Entries about objects of a kind. Who writes them may be a spoke, so that any part may be broken."""
    messages = [observed_object(kind, each, cluster=cluster) for each in objects.ALL[kind]]
    return broken(*(each.model_dump(mode="json") for each in messages)).map(_entry)


def _entry(value: Any) -> Entry:
    return addressed(Observed, written(value))


def _classify(kind: Kind, entry: Entry) -> object:
    projector = Projector("hub")
    for each, samples in objects.ALL.items():
        if each != kind:
            projector.observe(observed_object(each, samples[0]))
    list(projector.changes())
    dispatch(entry, {Observed: lambda one, _: projector.observe(one)})
    projector.on_synced()
    return [state.encode() for state, _ in projector.changes()]


def _decide(kind: Kind, entry: Entry) -> object:
    decider = Decider(QuotaSettings(cluster="hub"))
    for each, samples in objects.ALL.items():
        if each != kind:
            decider.apply(observed_object(each, samples[0]))
    decider.apply(workload("job-train", namespace="team-a"))
    dispatch(entry, {Observed: lambda one, _: decider.apply(one)})
    decider.apply(Synced(cluster="hub", epoch="1", kinds=[], at=NOON))
    decided = [each.encode() for each in decider.decide(NOON)]
    return decided, [each.encode() for each in decider.queue_statuses(NOON)]


def _watch(value: Any) -> object:
    """A watcher trusts an API server with metadata, and with nothing else."""
    obj = decoded(written(value), "watch")
    obj["metadata"] = {"name": "a", "uid": "u", "resourceVersion": "1", "annotations": {"a": "b"}}
    message = observed("hub", kinds.JOB, as_body(obj))
    data = tombstone("hub", kinds.JOB, as_body(obj)).encode()
    return message.subject, data, truncated(message, size=9, ref=None).encode()


def borders() -> Iterator[Border]:
    """Answers of API servers; then each kind for each service that reads it."""
    yield Border(
        name="answer of an API server", strategy=texts(objects.JOB, _STATUS),
        call=lambda data: encoded(decoded(data, "get")), allowed=(KubeError,),
    )  # fmt: skip
    yield Border(
        name="error of an API server",
        strategy=texts(_STATUS),
        call=lambda data: error_from(
            422, data, {"Retry-After": data[:20].decode(errors="replace")}, what="x", tests=True
        ),
    )
    yield Border(
        name="watcher: object", strategy=broken(objects.JOB, objects.WORKLOAD, objects.RUN), call=_watch,
        allowed=(KubeError,),
    )  # fmt: skip
    for kind in objects.ALL:
        yield Border(
            name=f"classifier: {kind.kind}", strategy=observations(kind),
            call=partial(_classify, kind),
        )  # fmt: skip
    for kind in (
        kinds.NAMESPACE, kinds.RESOURCE_FLAVOR, kinds.COHORT, kinds.ADMISSION_CHECK, kinds.CLUSTER_QUEUE,
        kinds.LOCAL_QUEUE,
    ):  # fmt: skip
        yield Border(
            name=f"quota: {kind.kind}", strategy=observations(kind),
            call=partial(_decide, kind),
        )  # fmt: skip
