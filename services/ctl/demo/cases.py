"""`sluice demo --pipelineruns`: runs given PipelineRuns, each with an expected result."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from services.classifier.rules import Rules
from services.classifier.webhook.mutation import RefusedError as MutationRefusedError
from services.classifier.webhook.mutation import mutate
from services.ctl.admin.mutate import load_rules
from services.ctl.connect.bus import connected
from services.ctl.connect.reader import utc_now
from services.ctl.demo.check import judge, until_given_back
from services.ctl.demo.create import DENIED, Submitted, create_with_retries
from services.ctl.demo.load import Arrival
from services.ctl.demo.results import read_results
from services.ctl.dev.app import EXAMPLE, Running
from services.provisioner.config.host_config import parse_host_config
from services.provisioner.config.platforms import is_platform, key_of
from services.whatif.manifests import load_documents, load_manifests
from shared.contracts import multi_platform
from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import (
    Body,
    annotations_of,
    as_body,
    labels_of,
    spec_of,
    strings_in,
)
from shared.contracts.kube.conditions import (
    QUOTA_RESERVED,
    SUCCEEDED,
    Conditions,
    find_condition,
    message_of,
)
from shared.contracts.kube.quantities import QuantityError, parse_quantity
from shared.integrations import PIPELINE_RUN, TEKTON_SLOT, queue_of
from shared.kube.port import AlreadyExistsError, Kube, NotFoundError, RefusedError
from shared.runtime.command import CommandError

NAMESPACE: Final = "default"
"""The namespace of a run whose manifest names none."""

CLUSTER_QUEUE: Final = "cluster-pipeline-queue"
EXTRA_FLAVOR: Final = "as-asked"
EXTRA_QUOTA: Final = "1k"
HOST_CONFIG: Final = (names.OPERATOR_NAMESPACE, multi_platform.HOST_CONFIG)
WAIT_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.5
_NAME_MAX: Final = 50
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenCase:
    """A PipelineRun and, if the file says so, what is expected of it."""

    name: str
    run: Body
    expected: Mapping[str, Any] | None = None
    unsure: bool = False
    """The file only says what the webhook makes of it, not how it ends."""


@dataclass(slots=True, kw_only=True)
class CaseResult:
    """The result of one case."""

    case: GivenCase
    submitted: Submitted
    workload: Body | None = None
    run: Body | None = None
    """As last seen."""

    note: str = ""

    @property
    def priority_class(self) -> str:
        """Of the Workload object; of the run's label if there is no Workload."""
        spec = spec_of(self.workload)
        reference = (spec.get("priorityClassRef") or {}).get("name")
        labels = labels_of(self.run)
        return str(
            reference or spec.get("priorityClassName") or labels.get(names.PRIORITY_CLASS_LABEL, "")
        )

    @property
    def requests(self) -> dict[str, str]:
        """Of the Workload object, without the slot that every run requests."""
        found: dict[str, str] = {}
        if self.workload is None:
            annotations = annotations_of(self.run)
            return {
                key.removeprefix(names.REQUESTS_PREFIX): value
                for key, value in sorted(annotations.items())
                if key.startswith(names.REQUESTS_PREFIX)
            }
        for pod_set in self.workload["spec"].get("podSets") or []:
            for container in pod_set["template"]["spec"]["containers"]:
                found |= (container.get("resources") or {}).get("requests") or {}
        found.pop(TEKTON_SLOT, None)
        return dict(sorted(found.items()))

    @property
    def platforms(self) -> list[str]:
        """Platforms that the run names and requests a slot for."""
        asked = self.requests
        named = {text for text in strings_in(spec_of(self.run)) if "/" in text}
        return sorted(text for text in named if names.slot_resource(text) in asked)

    @property
    def inadmissible_because(self) -> str:
        """Why it can never be admitted, if it names something that is no platform; else empty."""
        if all(is_platform(platform) for platform in self.platforms):
            return ""
        message = message_of(find_condition(self.workload, QUOTA_RESERVED))
        return message if multi_platform.UNAVAILABLE in message else ""

    @property
    def ended(self) -> bool:
        """Whether it ran to its end."""
        return self.run is not None and PIPELINE_RUN.finish(self.run) is not None


def load_cases(path: Path) -> list[GivenCase]:
    """Read a file of cases, or the PipelineRuns of a file or folder. Raises `CommandError`."""
    if path.is_file():
        documents = load_documents(path)
        if len(documents) == 1 and isinstance(documents[0][1], dict) and "cases" in documents[0][1]:
            return [_case(str(path), index, c) for index, c in enumerate(documents[0][1]["cases"])]
    found = [
        GivenCase(name=manifest.title.partition(" ")[2], run=manifest.object)
        for manifest in load_manifests([path])
        if manifest.kind.kind == kinds.PIPELINE_RUN.kind
    ]
    if not found:
        raise CommandError(str(path), "holds no PipelineRun")
    return found


def _case(source: str, index: int, case: Any) -> GivenCase:
    where = f"{source} cases[{index}]"
    if not isinstance(case, dict) or not isinstance(case.get("pipelineRun"), dict):
        raise CommandError(where, "pipelineRun: must be an object")
    expected = case.get("expected")
    if expected is not None and not isinstance(expected, dict):
        raise CommandError(where, f"expected: must be an object, got {expected!r}")
    return GivenCase(
        name=str(case.get("name", index)),
        run=case["pipelineRun"],
        expected=expected,
        unsure=bool(case.get("unsure")),
    )


async def run_cases(
    system: Running,
    cases: Sequence[GivenCase],
    *,
    now: Callable[[], datetime],
    say: Callable[[str], None],
) -> list[str]:
    """Create each run, wait for its end, and report it; return what is not as expected."""
    rules = load_rules(EXAMPLE / "classifier")
    kube = system.kube()
    try:
        await _prepare_queues(kube, cases, rules.queue_name)
        say(f"demo: creating {len(cases)} PipelineRuns")
        results = [await _create(kube, case, index, now) for index, case in enumerate(cases)]
        extra = await _add_missing_quota(kube, results)
        await _add_platforms(kube, results)
        if extra:
            say(
                f"demo: no group of {CLUSTER_QUEUE} covers {', '.join(extra)}: added, with "
                f"{EXTRA_QUOTA} of each, so that everything can run"
            )
        await _wait(kube, results)
    finally:
        await kube.close()
    wrong: list[str] = []
    for result in results:
        problem = verdict_of(result, rules)
        say(f"  {'ok    ' if not problem else 'FAILED'}  {_summary(result)}")
        if problem:
            say(f"          {problem}")
            wrong.append(f"{result.case.name}: {problem}")
    denied = sum(result.submitted.object is None for result in results)
    ended = sum(result.ended for result in results)
    say(f"{len(results)} created: {ended} ran to the end, {denied} were denied")
    faults = [f"{len(wrong)} of {len(results)} are not as expected"] if wrong else []
    return faults + await _check_logs(system, results, say)


async def _check_logs(
    system: Running, results: Iterable[CaseResult], say: Callable[[str], None]
) -> list[str]:
    submitted = {r.submitted.uid: r.submitted for r in results if r.ended}
    async with connected(system.nats_url, access=system.access) as bus:
        await until_given_back(bus)
        result = await read_results(bus, submitted)
    say("checks, from the log alone:")
    verdicts = judge(result, load=False, queues=False)
    for verdict in verdicts:
        for line in verdict.lines():
            say(line)
    return [verdict.name for verdict in verdicts if verdict.wrong]


async def _prepare_queues(kube: Kube, cases: Iterable[GivenCase], queue_name: str) -> None:
    """Create namespaces and LocalQueues that the runs name and that the example does not have."""
    wanted: dict[tuple[str, str], None] = {}
    for case in cases:
        namespace = case.run.get("metadata", {}).get("namespace") or NAMESPACE
        wanted[namespace, queue_of(case.run) or queue_name] = None
    for namespace, queue in wanted:
        local: Body = {
            "apiVersion": kinds.LOCAL_QUEUE.api_version,
            "kind": kinds.LOCAL_QUEUE.kind,
            "metadata": {"namespace": namespace, "name": queue},
            "spec": {"clusterQueue": CLUSTER_QUEUE},
        }
        space: Body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        for kind, obj in ((kinds.NAMESPACE, space), (kinds.LOCAL_QUEUE, local)):
            try:
                await kube.create(kind, obj)
            except AlreadyExistsError:
                continue


async def _create(
    kube: Kube, case: GivenCase, index: int, now: Callable[[], datetime]
) -> CaseResult:
    metadata: dict[str, Any] = dict(case.run.get("metadata") or {})
    metadata.pop("generateName", None)
    slug = _NOT_IN_NAMES.sub("-", case.name.lower()).strip("-")[:_NAME_MAX]
    metadata |= {
        "name": f"{slug}-{index:03d}",
        "namespace": metadata.get("namespace") or NAMESPACE,
    }
    run = as_body({**case.run, "metadata": metadata})
    arrival = Arrival(after_seconds=0.0, kind=kinds.PIPELINE_RUN, object=run, tier="")
    try:
        stored = await create_with_retries(kube, kinds.PIPELINE_RUN, run)
    except RefusedError as error:
        denied = Submitted(arrival=arrival, at=now(), object=None, refusal=str(error))
        return CaseResult(case=case, submitted=denied)
    return CaseResult(
        case=case, submitted=Submitted(arrival=arrival, at=now(), object=stored), run=stored
    )


async def _add_missing_quota(kube: Kube, results: Iterable[CaseResult]) -> list[str]:
    """Add quota for resources that no group covers; otherwise such runs wait forever."""
    queue = await kube.get(kinds.CLUSTER_QUEUE, None, CLUSTER_QUEUE)
    groups = queue["spec"].get("resourceGroups") or []
    covered = {resource for group in groups for resource in group["coveredResources"]}
    asked = {resource for result in results for resource in result.requests}
    extra = sorted(asked - covered)
    if not extra:
        return []
    flavor: Body = {
        "apiVersion": kinds.RESOURCE_FLAVOR.api_version,
        "kind": kinds.RESOURCE_FLAVOR.kind,
        "metadata": {"name": EXTRA_FLAVOR},
        "spec": {},
    }
    await kube.create(kinds.RESOURCE_FLAVOR, flavor)
    resources = [{"name": name, "nominalQuota": EXTRA_QUOTA} for name in extra]
    group = {
        "coveredResources": extra,
        "flavors": [{"name": EXTRA_FLAVOR, "resources": resources}],
    }
    patch: list[dict[str, Any]] = [{"op": "add", "path": "/spec/resourceGroups/-", "value": group}]
    await kube.patch(kinds.CLUSTER_QUEUE, None, CLUSTER_QUEUE, patch)
    return extra


async def _add_platforms(kube: Kube, results: Iterable[CaseResult]) -> None:
    """Add the platforms that runs name; otherwise such runs wait forever."""
    config = await kube.get(kinds.CONFIG_MAP, *HOST_CONFIG)
    data = dict(config.get("data") or {})
    known = parse_host_config(data, available=frozenset({"fake"})).platforms
    asked = {platform for result in results for platform in result.platforms}
    missing = sorted(one for one in asked if is_platform(one) and one not in known)
    for platform in missing:
        prefix = f"dynamic.{key_of(platform)}."
        given = {
            "type": "fake",
            multi_platform.MAX_INSTANCES: "1000",
            multi_platform.CHECK_INTERVAL: "1",
        }
        data |= {prefix + key: value for key, value in given.items()}
    data[multi_platform.DYNAMIC_PLATFORMS] = ",".join(
        [data.get(multi_platform.DYNAMIC_PLATFORMS, ""), *missing]
    ).strip(",")
    patch: list[dict[str, Any]] = [{"op": "add", "path": "/data", "value": data}]
    await kube.patch(kinds.CONFIG_MAP, *HOST_CONFIG, patch)


async def _wait(kube: Kube, results: Sequence[CaseResult]) -> None:
    """Read all runs repeatedly until all that can end have ended."""
    loop = asyncio.get_running_loop()
    until = loop.time() + WAIT_SECONDS
    created = [result for result in results if result.submitted.object is not None]
    while loop.time() < until:
        await _refresh(kube, created)
        if all(one.ended or one.inadmissible_because or one.case.unsure for one in created):
            return
        await asyncio.sleep(POLL_SECONDS)


async def _refresh(kube: Kube, results: Sequence[CaseResult]) -> None:
    runs = {r["metadata"]["uid"]: r for r in (await kube.list(kinds.PIPELINE_RUN)).items}
    workloads: dict[str, Body] = {}
    for workload in (await kube.list(kinds.WORKLOAD)).items:
        for owner in workload["metadata"].get("ownerReferences") or []:
            workloads[owner["uid"]] = workload
    for result in results:
        result.run = runs.get(result.submitted.uid, result.run)
        result.workload = workloads.get(result.submitted.uid, result.workload)
        await _end_run_of_other_manager(kube, result)


async def _end_run_of_other_manager(kube: Kube, result: CaseResult) -> None:
    """End a released run that Tekton does not manage, in place of its manager."""
    run = result.run
    if run is None or result.ended or PIPELINE_RUN.held(run):
        return
    manager = run["spec"].get("managedBy") or names.MANAGED_BY_TEKTON
    if manager == names.MANAGED_BY_TEKTON:
        return
    conditions = Conditions.of(run, at=utc_now())
    conditions.set(SUCCEEDED, True, SUCCEEDED, "by demo")
    result.note = f"managed by {manager}: Tekton leaves it alone, the demo ended it in its place"
    metadata = run["metadata"]
    try:
        await kube.patch(
            kinds.PIPELINE_RUN,
            metadata["namespace"],
            metadata["name"],
            {"status": {"conditions": conditions.items}},
            subresource="status",
        )
    except NotFoundError:
        return


def verdict_of(result: CaseResult, rules: Rules) -> str:
    """What is not as expected; empty if everything is."""
    expected, denied = result.case.expected, result.submitted.object is None
    error = (expected or {}).get("error")
    if error is not None:
        if not denied:
            return f"was expected to be denied with {error.get('contains')!r}"
        wanted = str(error.get("contains", ""))
        refusal = result.submitted.refusal
        return "" if wanted in refusal else f"was denied, but not with {wanted!r}"
    if denied:
        return "" if result.case.unsure else f"was denied: {result.submitted.refusal}"
    if not result.ended and not result.inadmissible_because and not result.case.unsure:
        return "did not run to the end"
    if expected is None:
        return ""
    class_, requests = result.priority_class, result.requests
    if not (result.case.run.get("metadata") or {}).get("namespace"):
        # An API server always sets a namespace; `sluice mutate` shows the result without one.
        class_, requests = _without_namespace(result.case.run, rules)
        result.note = f"without a namespace, as `sluice mutate` takes it: {class_ or 'no class'}"
    return "; ".join(_differences(expected, class_, requests, result))


def _without_namespace(run: Body, rules: Rules) -> tuple[str, dict[str, str]]:
    try:
        metadata = mutate(run, rules).object["metadata"]
    except MutationRefusedError as error:
        return f"refused: {error}", {}
    requests = {
        key.removeprefix(names.REQUESTS_PREFIX): value
        for key, value in metadata["annotations"].items()
        if key.startswith(names.REQUESTS_PREFIX)
    }
    return metadata["labels"].get(names.PRIORITY_CLASS_LABEL, ""), requests


def _differences(
    expected: Mapping[str, Any], class_: str, requests: Mapping[str, str], result: CaseResult
) -> list[str]:
    found: list[str] = []
    if class_ != expected.get("priorityClass", ""):
        found.append(f"class {class_ or 'none'}, expected {expected.get('priorityClass')}")
    wanted = {name: str(value) for name, value in (expected.get("requests") or {}).items()}
    if not _equal(wanted, requests):
        found.append(f"requests {dict(requests)}, expected {wanted}")
    queue = expected.get("queueName")
    if queue is not None and result.run is not None and queue_of(result.run) != queue:
        found.append(f"queue {queue_of(result.run)}, expected {queue}")
    return found


def _equal(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    try:
        amounts = [{k: parse_quantity(v) for k, v in each.items()} for each in (one, other)]
    except QuantityError:
        return dict(one) == dict(other)
    return amounts[0] == amounts[1]


def _summary(result: CaseResult) -> str:
    if result.submitted.object is None:
        refusal = result.submitted.refusal
        return f"{result.case.name}: denied: {refusal.partition(f'{DENIED}: ')[2] or refusal}"
    requests = ", ".join(f"{name}={value}" for name, value in result.requests.items()) or "a slot"
    finish = None if result.run is None else PIPELINE_RUN.finish(result.run)
    end = (
        f"kept out: {result.inadmissible_because}" if result.inadmissible_because else "did not end"
    )
    if finish is not None:
        end = (
            "ran to the end" if finish.success else f"ran to the end, and failed: {finish.message}"
        )
    note = f" ({result.note})" if result.note else ""
    return f"{result.case.name}: {result.priority_class}, {requests}, {end}{note}"
