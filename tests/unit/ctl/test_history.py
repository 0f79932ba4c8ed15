"""A workload's history, from the logs of a real server."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from services.ctl.inspect.history import history, history_json, history_lines, lost_beginning
from shared.bus.nats.bus import NatsBus
from shared.bus.stream_reader import StreamReader, open_stream_reader
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import Message
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.hosts import HostState
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import JobRef, WorkloadState
from shared.testing.nats_server import nats_server

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
WORKLOAD = "pipelinerun-build-1-3f2a1"


def story() -> list[Message]:
    common = {"cluster": "hub", "namespace": "team-tenant", "uid": "u", "traceparent": TRACE}
    observed = {"group": "tekton.dev", "version": "v1", "resource_version": "7"}
    run = {"metadata": {"name": "build-1"}, "spec": {"status": "PipelineRunPending"}}
    task = {"metadata": {"ownerReferences": [{"name": "build-1", "controller": True}]}}
    owner = JobRef(
        api_version="tekton.dev/v1",
        kind="PipelineRun",
        plural="pipelineruns",
        name="build-1",
        uid="u",
    )
    decision = {"term": 1, "number": 4, "decided_at": NOW, "name": WORKLOAD}
    return [
        Observed.model_validate(
            common
            | observed
            | {"plural": "pipelineruns", "kind": "PipelineRun", "name": "build-1", "object": run}
        ),
        WorkloadState.model_validate(
            common | {"name": WORKLOAD, "phase": "waiting", "created_at": NOW, "owner": owner}
        ),
        WorkloadState.model_validate(
            common | {"uid": "other", "name": "job-x-1", "phase": "waiting", "created_at": NOW}
        ),
        Admission.model_validate(
            common | decision | {"state": "admitted", "cluster_queue": "cluster-pipeline-queue"}
        ),
        # The subject of an answer ends with who gives it; that of an earlier release does not.
        *(
            CheckState.model_validate(
                common
                | {"name": WORKLOAD, "check": "spokes", "state": "Ready", "at": NOW}
                | {"service": service, "message": f"from {service or 'somebody'}"}
            )
            for service in ("dispatcher", "")
        ),
        Outcome.model_validate(
            common
            | {"name": WORKLOAD, "term": 1, "number": 4, "at": NOW}
            | {"result": "applied", "action": "release"}
        ),
        Observed.model_validate(
            common
            | observed
            | {"uid": "t", "plural": "taskruns", "kind": "TaskRun", "name": "build-1-arm64"}
            | {"object": task}
        ),
        HostState.model_validate(
            common
            | {"uid": "t", "name": "build-1-arm64", "platform": "linux/arm64", "state": "ready"}
            | {"host": "vm-1", "provider": "fake", "at": NOW}
        ),
    ]


@pytest.fixture
async def look() -> AsyncIterator[StreamReader]:
    async with nats_server() as server:
        bus = NatsBus(url=server.url, instance="test", now=lambda: NOW)
        await bus.start()
        for message in story():
            await bus.publish(message)
        await bus.stop()
        async with open_stream_reader(server.url) as look:
            yield look


async def test_history_lists_messages_in_order_with_the_trace(look: StreamReader) -> None:
    for name in ("build-1", WORKLOAD):
        events = await history(look, "team-tenant", name)
        told = [event.what for event in events]
        assert told == ["observed", "workload", "admission", "check", "check", "outcome", "host"]
        lines = history_lines(events)
        assert "OBSERVED:1 " in lines[0]
        assert "spec.status PipelineRunPending" in lines[0]
        assert "admitted in cluster-pipeline-queue (decision 1.4)" in lines[2]
        assert "spokes Ready: from dispatcher" in lines[3]
        assert "spokes Ready: from somebody" in lines[4]
        assert "release applied (decision 1.4)" in lines[5]
        assert "linux/arm64 ready on vm-1 (fake" in lines[6]
        assert lines[-1] == "trace: 0af7651916cd43dd8448eb211c80319c"


async def test_programs_get_one_json_object_a_line_with_the_message_as_it_was(
    look: StreamReader,
) -> None:
    lines = history_json(await history(look, "team-tenant", "build-1"))
    first = json.loads(lines[0])
    assert first["log"] == "OBSERVED"
    assert first["sequence"] == 1
    assert first["message"]["name"] == "build-1"


async def test_history_of_unknown_workload_is_empty(look: StreamReader) -> None:
    assert await history(look, "team-tenant", "nobody") == []
    assert await history(look, "other-tenant", "build-1") == []


DELETED = "older messages were deleted from"


@pytest.mark.parametrize(
    ("start", "line"),
    [
        ({}, None),
        ({"shortened": []}, None),
        ({"shortened": ["sluice.workload.hub.team-tenant.job-x-1"]}, None),
        (
            {"shortened": [f"sluice.workload.hub.team-tenant.{WORKLOAD}"]},
            f"begins in the middle: {DELETED} WORKLOADS, to make room",
        ),
        ({"others_until": "2020-01-01T00:00:00Z"}, None),
        (
            {"others_until": "2100-01-01T00:00:00Z"},
            f"may begin in the middle: {DELETED} WORKLOADS, to make room",
        ),
    ],
    ids=[
        "a release that does not tell",
        "nothing was shortened",
        "that of another workload was shortened",
        "its own was shortened",
        "more were shortened than are named, before it came",
        "more were shortened than are named, since it came",
    ],
)
async def test_history_says_whether_it_begins_in_the_middle(
    look: StreamReader, start: dict[str, object], line: str | None
) -> None:
    events = await history(look, "team-tenant", "build-1")
    assert lost_beginning(events, {"WORKLOADS": start}) == ([line] if line else [])
