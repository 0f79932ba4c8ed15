"""What a message contains of an object, and what it leaves out."""

from typing import Any

import pytest

from services.watcher.observe import observed, remains, tombstone, truncated
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import JOB, NODE, SECRET, TASK_RUN, Object
from shared.contracts.kube.names import TRUNCATED
from shared.contracts.messages.observed import Observed

APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def an_object(**fields: object) -> Object:
    metadata = {"namespace": "n", "name": "a", "uid": "u", "resourceVersion": "7"}
    return {"apiVersion": "v1", "kind": "X", "metadata": metadata, **fields}


def with_metadata(**more: object) -> Object:
    obj = an_object(spec={"x": 1})
    obj["metadata"] |= more
    return obj


TRIMMED = {
    "managed fields": (with_metadata(managedFields=[{"manager": "m"}]), {}),
    "what kubectl applied last": (
        with_metadata(annotations={APPLIED: "{}", "keep": "me"}),
        {"annotations": {"keep": "me"}},
    ),
    "annotations that were nothing else": (
        with_metadata(annotations={APPLIED: "{}"}),
        {"annotations": {}},
    ),
    "nothing else": (
        with_metadata(annotations={"a": "b"}, labels={"c": "d"}, finalizers=["f"]),
        {"annotations": {"a": "b"}, "labels": {"c": "d"}, "finalizers": ["f"]},
    ),
}


@pytest.mark.parametrize(("obj", "kept"), TRIMMED.values(), ids=TRIMMED.keys())
def test_message_leaves_out_noise_and_keeps_the_rest(obj: Object, kept: Object) -> None:
    before = repr(obj)
    message = observed("hub", JOB, obj)
    assert message.object is not None
    identity = {"namespace": "n", "name": "a", "uid": "u", "resourceVersion": "7"}
    assert message.object["metadata"] == identity | kept
    assert message.object["spec"] == {"x": 1}
    assert repr(obj) == before, "the object itself is left alone"


@pytest.mark.parametrize("say", [observed, tombstone])
def test_data_of_secret_is_never_in_message(say: type) -> None:
    obj = an_object(data={"k": "aGlkZGVu"}, stringData={"k": "hidden"}, type="Opaque")
    message = say("hub", SECRET, obj)
    assert b"aGlkZGVu" not in message.encode()
    assert b"hidden" not in message.encode()
    assert message.object["type"] == "Opaque"


def test_message_has_identity_of_object() -> None:
    message = observed("hub", JOB, an_object())
    assert (message.namespace, message.name, message.uid, message.resource_version) == (
        "n",
        "a",
        "u",
        "7",
    )
    assert message.subject == "sluice.observed.hub.n.a.jobs_batch"
    assert not message.deleted


def test_subject_of_cluster_scoped_object_has_no_namespace() -> None:
    obj = as_body({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}})
    assert observed("hub", NODE, obj).subject == "sluice.observed.hub._.a.nodes_"


def test_tombstone_has_last_state_and_its_own_message_id() -> None:
    alive, dead = observed("hub", JOB, an_object()), tombstone("hub", JOB, an_object())
    assert dead.deleted
    assert dead.object == alive.object
    assert dead.message_id != alive.message_id


LONG = "\1" * 1_000_000

RUN = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "uid": "r", "controller": True}

LARGE = {
    "spec": {"spec": {"template": {"env": LONG}}},
    "labels": {"metadata": {"labels": {"a": LONG}}},
    "annotations": {"metadata": {"annotations": {"sluicegate.dev/traceparent": LONG}}},
    "name of its controller": {"metadata": {"ownerReferences": [{**RUN, "name": LONG}]}},
    "plain name of its controller": {"metadata": {"ownerReferences": [{**RUN, "name": "x" * 999}]}},
    "version of its controller": {
        "metadata": {
            "ownerReferences": [{**RUN, "name": "r", "apiVersion": "tekton.dev/" + "v" * 999}],
        }
    },
    "name of a Workload": {"metadata": {"ownerReferences": [{**RUN, "name": "w" * 253}]}},
    "many owners": {
        "metadata": {
            "ownerReferences": [
                *(
                    {"apiVersion": "v1", "kind": "X", "name": "x", "uid": f"{n}"}
                    for n in range(5000)
                ),
                {**RUN, "name": "r"},
            ]
        }
    },
    "status": {"status": {"startTime": "2026-01-01T00:00:00Z", "x": LONG, "completionTime": LONG}},
}


@pytest.mark.parametrize("large", LARGE.values(), ids=LARGE.keys())
def test_tombstone_is_small_and_keeps_what_its_readers_use(large: Object) -> None:
    obj = an_object(spec={"x": 1}, status={"startTime": "2026-01-01T00:00:00Z"})
    metadata = obj["metadata"] | large.get("metadata", {})
    obj = as_body({**obj, **large, "metadata": metadata})
    gone = Observed.decode(remains(tombstone("hub", TASK_RUN, obj)).encode())
    assert len(gone.encode()) < 1_500
    assert gone.body is not None
    assert gone.body.get("status") == {"startTime": "2026-01-01T00:00:00Z"}
    owners = gone.body["metadata"].get("ownerReferences") or []
    named = [one["name"] for one in metadata.get("ownerReferences", ()) if "controller" in one]
    assert [one["name"] for one in owners] == ["" if name == LONG else name[:253] for name in named]
    controllers = [(one["uid"], one["apiVersion"].split("/")[0], one["kind"]) for one in owners]
    assert controllers == [("r", "tekton.dev", "PipelineRun")] * ("ownerReferences" in metadata)


def test_tombstone_of_a_departure_names_its_job() -> None:
    obj = an_object(spec={"template": {"env": LONG}})
    apart = tombstone("hub", JOB, obj).apart()
    assert apart is not None
    gone = Observed.decode(remains(apart.ended()).encode())
    assert len(gone.encode()) < 2_000
    job = gone.departed()
    assert job is not None
    assert (job.deleted, job.plural, job.name, job.uid) == (True, "jobs", "a/u", "u")


def test_what_is_left_of_a_large_object_is_bounded_in_its_owners_too() -> None:
    obj = with_metadata(ownerReferences=[{**RUN, "name": LONG}, {**RUN, "name": LONG}])
    message = observed("hub", JOB, obj)
    short = truncated(message, size=len(message.encode()), ref=None)
    assert len(short.encode()) < 4_000
    assert short.object is not None
    assert [one["uid"] for one in short.object["metadata"]["ownerReferences"]] == ["r"]


MANY = {f"k{n}": "v" * 60 for n in range(10_000)}

MUCH = {
    "labels": {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q", **MANY}}},
    "annotations": {"metadata": {"annotations": MANY}},
    "finalizers": {"metadata": {"finalizers": list(MANY)}},
    "scalars of the spec": {"spec": {"suspend": True, "x" * 20_000: 1, **MANY}},
    "scalars of the status": {"status": {"active": 1, **MANY}},
    "conditions": {
        "status": {"active": 1, "conditions": [{"type": "T" * 900, "status": "True"}] * 5_000}
    },
}


@pytest.mark.parametrize("much", MUCH.values(), ids=MUCH.keys())
def test_truncated_object_is_small_whatever_there_is_much_of(much: Object) -> None:
    whole = {"labels": {"kueue.x-k8s.io/queue-name": "q"}, **much.get("metadata", {})}
    obj = with_metadata(**whole) | {"spec": {"suspend": True}, "status": {"active": 1}}
    message = observed(
        "hub", JOB, as_body({**obj, **{k: much[k] for k in much if k != "metadata"}})
    )
    short = Observed.decode(truncated(message, size=len(message.encode()), ref=None).encode())
    assert len(short.encode()) < 50_000
    assert short.object is not None
    assert short.object["spec"]["suspend"] is True
    assert short.object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert short.object["status"]["active"] == 1


def test_message_carries_trace_context_of_object() -> None:
    trace = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    obj = with_metadata(annotations={"sluicegate.dev/traceparent": trace})
    assert observed("hub", JOB, obj).traceparent == trace


@pytest.mark.parametrize("levels", [200, 5_000])
def test_object_that_no_reader_could_decode_is_published_without_its_contents(levels: int) -> None:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    obj = with_metadata(labels={"q": "r"})
    obj["spec"] = {"suspend": True, "params": nested}
    message = Observed.decode(observed("hub", JOB, obj).encode())
    assert message.object is not None
    assert message.object["spec"] == {"suspend": True}
    assert "levels" in message.object["metadata"]["annotations"][TRUNCATED]


def test_truncated_object_keeps_metadata_scalars_and_conditions() -> None:
    obj = with_metadata(annotations={"big": "x" * 5000, "small": "y"}, labels={"q": "r"})
    obj["spec"] = {"suspend": False, "template": {"x": "y" * 5000}, "text": "z" * 5000}
    obj["status"] = {
        "completionTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Complete", "status": "True", "message": "m" * 5000}],
        "results": ["r" * 5000],
    }
    message = observed("hub", JOB, obj)
    short = truncated(message, size=len(message.encode()), ref=None)
    assert short.object is not None
    assert len(short.encode()) < 1500
    assert short.object["metadata"]["labels"] == {"q": "r"}
    assert short.object["metadata"]["annotations"]["small"] == "y"
    assert "bytes" in short.object["metadata"]["annotations"][TRUNCATED]
    assert short.object["spec"] == {"suspend": False}
    assert short.object["status"] == {
        "completionTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Complete", "status": "True"}],
    }
    assert short.message_id == message.message_id
