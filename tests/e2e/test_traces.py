"""One trace per workload, over the real processes: what an OTLP receiver gets of `sluice dev`."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from services.ctl.programs import SERVICES
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind as ObjectKind
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import TRACEPARENT_ANNOTATION
from shared.contracts.simulation import DURATION
from shared.kube.client import HttpKube
from shared.kube.config import from_kubeconfig
from shared.telemetry.spans import Context, Kind, Span
from shared.telemetry.traceparent import parse_traceparent
from shared.testing.spans import coverage, leaves
from shared.testing.waiting import eventually
from tests.e2e.otlp_receiver import Receiver, receiver
from tests.e2e.semantic_conventions import broken
from tests.e2e.test_dev import read_until, state_of

PAGE: Final = Path(__file__).parents[2] / "docs" / "how-to" / "tracing.md"
NAMESPACE: Final = "team-tenant"
ELSEWHERE: Final = "pipelines-queue"
"""The LocalQueue whose runs go to the spoke."""

NARROW: Final = "narrow"
"""A LocalQueue of one run at a time."""

CLUSTERS: Final = {"simulator", "simulator-spoke-1"}
"""Of all processes those that play what is not ours."""

HERE: Final = ("first", "second", "third")
RUN_SECONDS: Final = 3
BETWEEN_SECONDS: Final = 0.5
"""From one death to the next."""

COVERED: Final = 0.95
ADMISSION: Final = "sluice.admission.{cluster}.{namespace}.{name}"
DISPATCH: Final = "sluice.dispatch.{spoke}.{namespace}.{name}"
TEKTON: Final = "tekton.dev/pipelinerunSpanContext"
AUTHOR: Final = Context(trace_id=0x0AF7651916CD43DD8448EB211C80319C, span_id=0xB7AD6B7169203331)
"""Whoever creates the third run is in a trace of his own."""


@dataclass(frozen=True, kw_only=True)
class TracedRun:
    """A run as it was created, and the trace that the collector got of it."""

    created: Object
    spans: list[Span]

    @property
    def annotations(self) -> dict[str, str]:
        return dict(self.created["metadata"]["annotations"])

    @property
    def root(self) -> Span:
        """The workload's own span."""
        ids = parse_traceparent(self.annotations[TRACEPARENT_ANNOTATION])
        assert ids is not None
        return next(
            span for span in self.spans if span.context == Context(trace_id=ids[0], span_id=ids[1])
        )

    def __str__(self) -> str:
        return "\n".join(
            f"{span.start:%M:%S.%f} {span.end:%M:%S.%f} {span.service:12} {span.name}"
            for span in sorted(self.spans, key=lambda span: span.start)
        )


def run(name: str, queue: str, *, annotations: dict[str, str], **spec: Any) -> Object:
    duration = {DURATION: f"{RUN_SECONDS}s"}
    labels = {"kueue.x-k8s.io/queue-name": queue, "tekton.dev/pipeline": "build"}
    metadata = {"labels": labels, "annotations": duration | annotations}
    named = {"name": name, "namespace": NAMESPACE, **metadata}
    return an(kinds.PIPELINE_RUN, named, {"pipelineRef": {"name": "build"}, **spec})


def an(kind: ObjectKind, metadata: Object, spec: Object) -> Object:
    return {
        "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec
    }  # fmt: skip


def runs() -> list[Object]:
    """Three for one place, of which the third continues a trace, and one for the spoke."""
    theirs = f"00-{AUTHOR.trace_id:032x}-{AUTHOR.span_id:016x}-01"
    return [
        run("first", NARROW, annotations={}),
        run("second", NARROW, annotations={}),
        run("third", NARROW, annotations={TEKTON: json.dumps({"traceparent": theirs})}),
        run("away", ELSEWHERE, annotations={}, managedBy="kueue.x-k8s.io/multikueue"),
    ]


def one_place() -> list[tuple[ObjectKind, Object]]:
    quota = [{"name": "tekton.dev/pipelineruns", "nominalQuota": 1}]
    flavors = [{"name": "anywhere", "resources": quota}]
    groups = [{"coveredResources": ["tekton.dev/pipelineruns"], "flavors": flavors}]
    queue = {"namespaceSelector": {}, "resourceGroups": groups}
    here = {"name": NARROW, "namespace": NAMESPACE}
    return [
        (kinds.CLUSTER_QUEUE, an(kinds.CLUSTER_QUEUE, {"name": NARROW}, queue)),
        (kinds.LOCAL_QUEUE, an(kinds.LOCAL_QUEUE, here, {"clusterQueue": NARROW})),
    ]


@asynccontextmanager
async def dev(tmp_path: Path, collector: Receiver) -> AsyncIterator[HttpKube]:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "config.yaml").write_text(f"queueName: {ELSEWHERE}\n")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.ctl.main", "dev", "--quiet", "--rules", str(rules)),
        *("--processes", "--spokes", "1", "--speed", "1"),
        cwd=tmp_path,
        env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        await read_until(process, "ready; Ctrl-C stops everything")
        kube = HttpKube(from_kubeconfig(state_of(tmp_path)["kubeconfig"]))
        try:
            yield kube
        finally:
            await kube.close()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def story(kube: HttpKube, tmp_path: Path, collector: Receiver) -> list[Object]:
    """Runs that wait, run, or are elsewhere, while NATS and every service are killed in turn."""
    for kind, obj in one_place():
        await kube.create(kind, obj)
    created = [await kube.create(kinds.PIPELINE_RUN, one) for one in runs()]
    await asyncio.sleep(RUN_SECONDS / 2)
    children = state_of(tmp_path)["children"]
    assert children.keys() >= {"nats-server", "tracer", "patcher-spoke-1"} | {*SERVICES}
    for service in sorted(children.keys() - CLUSTERS):
        os.kill(children[service], signal.SIGKILL)
        await asyncio.sleep(BETWEEN_SECONDS)

    async def all_done() -> bool:
        now = (await kube.list(kinds.PIPELINE_RUN, namespace=NAMESPACE)).items
        return all((one.get("status") or {}).get("completionTime") for one in now)

    await eventually(all_done)

    async def all_told() -> bool:
        jobs = {span.attributes.get("sluicegate.job") for span in collector.spans()}
        return jobs >= {one["metadata"]["name"] for one in created}

    await eventually(all_told)
    return [*created]


def traces_of(created: list[Object], collector: Receiver) -> dict[str, TracedRun]:
    """The trace of each run: all of it, once the processes have sent what they had and ended."""
    traced = {}
    for one in created:
        ids = parse_traceparent(one["metadata"]["annotations"][TRACEPARENT_ANNOTATION])
        assert ids is not None
        spans = [span for span in collector.spans() if span.context.trace_id == ids[0]]
        traced[one["metadata"]["name"]] = TracedRun(created=one, spans=spans)
    return traced


async def test_workload_is_one_trace_from_its_submission_to_its_end(tmp_path: Path) -> None:
    with receiver() as collector:
        async with dev(tmp_path, collector) as kube:
            created = await story(kube, tmp_path, collector)
        traced = traces_of(created, collector)
        batches = [span for span in collector.spans() if span.name == f"publish {ADMISSION}"]
        assert collector.paths == {"/v1/traces"}
        assert {complaint for span in collector.spans() for complaint in broken(span)} == set()
    for name, one in traced.items():
        check_whole(one, name)
        check_told_of(one, PAGE.read_text())
        check_batches(one, batches)
    check_joined(traced)
    check_waited([traced[name] for name in HERE])
    check_away(traced["away"])


def check_whole(traced: TracedRun, name: str) -> None:
    """From the webhook to the end, over the death of whoever had a part in it: one tree without a gap."""
    known = {span.context for span in traced.spans}
    assert [span for span in traced.spans if span.parent not in known] == [traced.root], str(traced)
    assert traced.root.name == "RUN build"
    assert traced.root.attributes["cicd.pipeline.result"] == "success"
    assert traced.root.attributes["sluicegate.job"] == name
    covered = coverage(traced.spans, traced.root.start, traced.root.end)
    assert covered >= COVERED, f"{name}: {covered:.1%}\n{traced}"
    services = {span.service for span in traced.spans}
    needed = {"classifier", "quota", "patcher", "cluster", "sluicegate"}
    if any(s.name == f"process {ADMISSION}" and s.end >= traced.root.end for s in traced.spans):
        # The patcher was killed before it told of the release, and told of it after the end.
        needed -= {"cluster"}
    assert services >= needed, str(traced)
    assert "POST /mutate" in {span.name for span in traced.spans}, str(traced)


def check_told_of(traced: TracedRun, page: str) -> None:
    """The how-to says what each span means."""
    for span in traced.spans:
        name = re.sub(r"\.\{.*", ".…", span.name)
        for general in (r"(wait AdmissionCheck) \w+", r"(RUN) \w+", r"(wait|stop) \w+"):
            if f"`{name}`" not in page:
                name = re.sub(f"^{general}$", lambda found: f"{found[1]} <", name)
        assert f"`{name}" in page, f"{PAGE.name} does not tell of {span.name}"


def check_batches(traced: TracedRun, batches: list[Span]) -> None:
    """Decisions that were published together are linked with the step that published them."""
    created = [span for span in traced.spans if span.name == f"create {ADMISSION}"]
    assert created, str(traced)
    for decision in created:
        (batch,) = [batch for batch in batches if decision.context in batch.links]
        assert batch.context in decision.links
        assert batch.attributes["messaging.batch.message_count"] >= len(batch.links)  # type: ignore[operator]
    processed = [span for span in traced.spans if span.name == f"process {ADMISSION}"]
    assert {link for span in processed for link in span.links} <= {span.context for span in created}


def check_joined(traced: dict[str, TracedRun]) -> None:
    """Tekton is told of the trace, or has told of it."""
    first, third = traced["first"], traced["third"]
    ours = first.annotations[TRACEPARENT_ANNOTATION]
    assert json.loads(first.annotations[TEKTON]) == {"traceparent": ours}
    assert first.root.parent is None
    assert third.root.parent == AUTHOR
    assert {span.context.trace_id for span in third.spans} == {AUTHOR.trace_id}


def check_waited(traced: list[TracedRun]) -> None:
    """Who ran last waited until the others had ended, for the one place that there is."""
    *others, last = sorted(traced, key=lambda one: one.root.end)
    waits = [span for span in leaves(last.spans) if "sluicegate.wait.reason" in span.attributes]
    for_quota = [
        span for span in waits if span.attributes["sluicegate.wait.reason"] == "WaitingForQuota"
    ]
    assert max(span.end for span in for_quota) >= max(one.root.end for one in others), str(last)
    assert all(span.name == f"wait {span.attributes['sluicegate.wait.reason']}" for span in waits)


def check_away(traced: TracedRun) -> None:
    """It ran on the spoke, as a part of the same trace."""
    (copy,) = [s for s in traced.spans if s.name == "RUN build" and s.parent == traced.root.context]
    assert copy.attributes["k8s.cluster.name"] == "spoke-1"
    there = {span.name: span for span in traced.spans if span.parent == copy.context}
    assert there.keys() >= {f"create {DISPATCH}", f"process {DISPATCH}", "run"}, str(traced)
    assert there[f"create {DISPATCH}"].kind is Kind.PRODUCER
    at_home = {span.name for span in traced.spans} - there.keys()
    assert "wait AdmissionCheck elsewhere" in at_home, str(traced)
