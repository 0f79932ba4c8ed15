"""Borders of the bus: subjects, headers, and the body of every message."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st

from shared.bus import headers
from shared.bus.direct_read import SOURCE, parse_block, source_sequence
from shared.bus.follow import dispatch
from shared.bus.port import Entry
from shared.contracts import subjects
from shared.contracts.kube.names import REQUIRED_WHILE_SCHEDULING
from shared.contracts.messages import base, outcomes
from shared.contracts.messages.base import Message, UndecodableError
from shared.contracts.subjects import RULING
from tests.contract.test_wire_format import EXAMPLES
from tests.fuzz import objects
from tests.fuzz.border import Border
from tests.fuzz.values import ODD, strings, texts

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
_WIRE: Final = Path(__file__).parents[1] / "contract" / "wire"
_SUBJECTS: Final = (
    "sluice.admission.hub.team-a.job-train-3f2a1", "sluice.observed.hub._.team-a.namespaces_",
    "sluice.observed.hub.team-a.train.jobs_batch", "sluice.check.hub.team-a.x.machines", "=mfrgg",
    "sluice.dead.quota.sluice.check.hub.team-a.x", "$JS.ACK.A.B.1.2.3.4.5",
)  # fmt: skip


_MORE: Final[dict[str, Any]] = {
    "workload": {
        "admission": objects.WORKLOAD["status"]["admission"], "requeue_at": objects.NOON,
        "evicted_at": objects.NOON, "evicted_reason": "Preempted", "max_execution_seconds": 60,
        "outgrown": {"main": 4}, "inadmissible": "why", "on_hold": "paused", "gated": "g",
        "labels": {"a": "b"}, "coschedule": "preferred", "trace_parent": "b7ad6b7169203331",
        "pods_ready_at": objects.NOON,
        "pod_sets": [{
            "name": "main", "count": 3, "min_count": 1, "requests": {"cpu": "1500m"}, "reclaimable": 1,
            "tolerations": objects.POD["tolerations"], "node_selector": {"a": "b"},
            "node_affinity": objects.AFFINITY["nodeAffinity"][REQUIRED_WHILE_SCHEDULING],
            "returned": {"linux-arm64": "1"},
        }],
    },
    "admission": {
        "checks": ["machines"], "spoke": "west", "requeue_at": objects.NOON, "preempted_by": "a/b",
        "queued_at": objects.NOON, "admitted_at": objects.NOON, "pods_ready_at": objects.NOON,
    },
    "dispatch": {
        "job": objects.JOB, "workload": objects.WORKLOAD, "spec": objects.JOB["spec"],
        "wish": {"suspend": True}, "target": {
            "api_version": "batch/v1", "kind": "Job", "plural": "jobs", "name": "train", "uid": "u"},
    },
    "home": {"spec": {"a": 1}, "status": objects.JOB["status"]},
    "observed": {"object": objects.JOB, "object_ref": "a@b"},
}  # fmt: skip


def sample(name: str) -> dict[str, Any]:
    """The body of one message, as the wire has it, with more of the optional fields."""
    body: dict[str, Any] = json.loads((_WIRE / f"{name}.json").read_text())
    return {**body, **_MORE.get(name, {})}


def entry(subject: str, data: bytes, kind: type[Message], **more: str) -> Entry:
    """As a reader gets it."""
    found = {headers.TYPE: kind.type, base.SCHEMA_VERSION: "1", **more}
    return Entry(subject=subject, data=data, headers=found, sequence=7, time=NOON)


def addressed(kind: type[Message], data: bytes, **more: str) -> Entry:
    """An entry under the subject that its body names; of an unreadable one, under any."""
    try:
        subject = kind.model_validate_json(data).subject
    except (ValueError, AssertionError):
        subject = "sluice.any"
    return entry(subject, data, kind, **more)


def _header(value: Any) -> object:
    """What a reader makes of the headers of an entry."""
    raw = "\r\n".join(("NATS/1.0", *(f"{name}: {text}" for name, text in value.items())))
    found = parse_block(raw.encode(errors="replace"))
    headers.parse(raw)
    source_sequence(found)
    headers.is_tombstone(found)
    headers.taken_at(found, NOON) + timedelta(days=1), headers.taken_at(found, NOON).astimezone(UTC)
    one = Entry(subject="sluice.x", data=b"{}", headers=found, sequence=1, time=NOON)
    dispatch(one, {outcomes.Outcome: _nothing})
    return None


def _nothing(_message: Message, _entry: Entry) -> None:
    """A handler that does nothing."""


_HEADER_VALUES: Final = st.one_of(
    st.sampled_from([value for value in ODD if isinstance(value, str)]),
    strings("ADMISSIONS 17 > > sluice.a", "2026-01-01T12:00:00+00:00", "1.2", "a@b"),
)
_HEADERS: Final = st.dictionaries(
    st.sampled_from(
        [SOURCE, headers.MESSAGE_ID, headers.TYPE, base.SCHEMA_VERSION, "ce-time", base.BODY_REF,
         RULING, base.TRACEPARENT, "Nats-TTL", "a b", ""]
    ),
    _HEADER_VALUES,
)  # fmt: skip


def _body_border(kind: type[Message], name: str) -> Border:
    def call(data: bytes) -> object:
        found = addressed(kind, data).read(kind)
        return found.encode(), found.subject, found.message_id, found.ruling, found.repeats(found)

    return Border(
        name=f"message {name}",
        strategy=texts(sample(name)),
        call=call,
        allowed=(UndecodableError,),
    )


def borders() -> Iterator[Border]:
    """Subjects, headers, and one border for each message."""
    yield Border(
        name="subject token, read", strategy=strings(*_SUBJECTS), call=subjects.decode,
        allowed=(ValueError,),
    )  # fmt: skip
    yield Border(
        name="subject token, written", strategy=strings(*_SUBJECTS),
        call=lambda name: subjects.decode(subjects.encode(name)), allowed=(subjects.UnusableNameError,),
    )  # fmt: skip
    yield Border(
        name="subject of a workload", strategy=strings(*_SUBJECTS), call=subjects.workload_of
    )
    yield Border(name="headers", strategy=_HEADERS, call=_header)
    yield Border(
        name="schema version",
        strategy=strings("1", "2", "99999"),
        call=lambda text: outcomes.Outcome.decode(b"{}", {base.SCHEMA_VERSION: text}),
        allowed=(UndecodableError,),
    )
    for name, example in EXAMPLES.items():
        yield _body_border(type(example), name)
