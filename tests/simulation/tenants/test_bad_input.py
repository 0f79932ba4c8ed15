"""Odd and hostile input at the front door of a whole cluster: each has an outcome, none evades quota.

What the API server itself refuses (names, labels, sizes) is in the contract suite; what the webhook
answers in `tests/unit/classifier`. Here everything runs.
"""

import pytest

from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import MAX_EXECUTION, PRIORITY_CLASS_LABEL, QUEUE
from shared.kube.port import KubeError, RefusedError
from tests.conformance.seeds.stage import Stage, job, pipeline_run, pool, priority, story
from tests.simulation.tenants.hostile_input import CPU, SLOT, used, workload

LONG = ("a" * 62 + ".") * 4 + "b"

"""A name as long as one may be."""


async def refused(stage: Stage, obj: Object) -> str:
    """Why the API server does not take it."""
    with pytest.raises(RefusedError) as error:
        await stage.create(obj)
    return str(error.value)


@story()
async def test_names_of_maximum_length_work_in_every_service(stage: Stage) -> None:
    assert len(LONG) == 253
    await stage.create(*pool(LONG, {"cpu": 2}, flavor=LONG))
    theirs = await stage.create(workload(LONG, LONG))
    run = pipeline_run("r" * 253)
    await stage.until_admitted(theirs)
    await stage.create(*pool("slots", {"tekton.dev/pipelineruns": 2}))
    run["metadata"]["labels"][QUEUE] = "slots"
    made = await stage.create(run)
    await stage.until_admitted(made)
    assert await used(stage, LONG) == "1"


@pytest.mark.parametrize("name", ["*", "a.*.b", ">", "a>", "ärger", "a b", "-a", "A"])
@story()
async def test_invalid_name_is_refused_and_reaches_no_service(stage: Stage, name: str) -> None:
    await stage.create(*pool("q", {"cpu": 2}))
    assert name in await refused(stage, workload(name, "q"))
    assert name in await refused(stage, job(name, "q", CPU))
    fine = await stage.create(job("fine", "q", CPU))
    await stage.until_admitted(fine)


@pytest.mark.parametrize("queue", ["*", "a.*", ">", "q.>"])
@story()
async def test_queue_name_that_is_a_wildcard_matches_nothing(stage: Stage, queue: str) -> None:
    await stage.create(*pool("q", {"cpu": 2}))
    with pytest.raises(KubeError):
        await stage.create(workload("w", queue))
    with pytest.raises(KubeError):
        await stage.create(job("j", queue, CPU))
    assert await used(stage, "q") == "0"


@story()
async def test_labels_and_annotations_of_maximum_size_are_passed_on(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 2}))
    key = ("k." * 126 + "k")[:253] + "/" + "n" * 63
    text = "ключ→值😀" * 8_000
    big = job("big", "q", CPU, labels={key: "v" * 63}, annotations={"a": text})
    made = await stage.create(big)
    await stage.until_admitted(made)
    assert (await stage.fresh(made))["metadata"]["annotations"]["a"] == text


@story()
async def test_job_larger_than_a_message_is_queued_runs_and_finishes(stage: Stage) -> None:
    """1.4 MB: as much as an API server keeps. On the log there are short forms only."""
    stage.system.server.max_payload = 128 << 10
    await stage.create(*pool("q", {"cpu": 1}))
    obj = job("large", "q", CPU, seconds=60)
    container = obj["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": f"E{n}", "value": "x" * 1000} for n in range(640)]
    first = await stage.create(obj)
    second = await stage.create(job("next", "q", CPU, seconds=60))
    await stage.until_admitted(first)
    assert len(stage.system.server.bodies) > 0
    assert not await stage.is_admitted(second)
    await stage.until_finished(first, second)
    template = (await stage.workload(first))["spec"]["podSets"][0]["template"]
    assert len(template["spec"]["containers"][0]["env"]) == 640
    await stage.delete(first)
    await stage.settle(30)
    assert len(stage.system.server.bodies) == 0


@story()
async def test_object_above_the_etcd_limit_is_refused(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 1}))
    obj = job("huge", "q", CPU)
    container = obj["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": f"E{n}", "value": "x" * 1000} for n in range(1700)]
    with pytest.raises(KubeError):
        await stage.create(obj)


TEMPLATES: dict[str, tuple[Object, str]] = {
    "a container that is a name": (
        {"containers": ["work"]},
        "containers[0]: must be an object, got str",
    ),
    "a toleration in a word": (
        {"containers": [], "tolerations": ["spot"]},
        "tolerations[0]: must be an object, got str",
    ),
    "a class in a list": (
        {"containers": [], "runtimeClassName": ["kata"]},
        "runtimeClassName: must be a string, got list",
    ),
}


@pytest.mark.parametrize(("spec", "why"), TEMPLATES.values(), ids=TEMPLATES)
@story()
async def test_job_with_an_unreadable_template_waits_with_the_reason_and_blocks_no_other(
    stage: Stage, spec: Object, why: str
) -> None:
    """The schema of a Workload takes any pod template."""
    await stage.create(*pool("q", CPU))
    odd = workload("odd", "q")
    odd["spec"]["podSets"][0]["template"]["spec"] = spec
    made = await stage.create(odd)
    await stage.until_waits(made, f"spec.podSets[0].template.spec.{why}" if ":" in why else why)
    fine = await stage.create(job("fine", "q", CPU))
    await stage.until_admitted(fine)


@story()
async def test_removed_label_of_a_waiting_job_has_no_effect(
    stage: Stage,
) -> None:
    """Of what has quota the Workload counts: what it kept there put the job out of its queue."""
    await stage.create(*pool("q", SLOT), priority("high", 100))
    runs = await stage.create(pipeline_run("runs", seconds=60, labels={QUEUE: "q"}))
    await stage.until_admitted(runs)
    labels = {QUEUE: "q", MAX_EXECUTION: "60", PRIORITY_CLASS_LABEL: "high"}
    waits = await stage.create(pipeline_run("waits", seconds=300, labels=labels))
    await stage.until_waits(waits)
    taken_off = {MAX_EXECUTION: None, PRIORITY_CLASS_LABEL: None}
    await stage.patch(waits, {"metadata": {"labels": taken_off}})
    await stage.until_admitted(waits)
    spec = (await stage.workload(waits))["spec"]
    assert (spec["priority"], spec.get("priorityClassRef")) == (0, None)
    await stage.until_finished(waits)
    assert (await stage.condition(waits, "Finished"))["reason"] == "Succeeded"


@pytest.mark.parametrize("seconds", [str(2**31), "9" * 12, "9" * 63])
@story()
async def test_duration_beyond_the_calendar_is_reported_and_blocks_no_other(
    stage: Stage, seconds: str
) -> None:
    await stage.create(*pool("q", {**CPU, **SLOT}))
    labels = {QUEUE: "q", MAX_EXECUTION: seconds}
    assert MAX_EXECUTION in await refused(stage, job("long", None, CPU, labels=labels))
    run = await stage.create(pipeline_run("long", labels=labels))
    await stage.until_waits(run, MAX_EXECUTION)
    fine = await stage.create(job("fine", "q", CPU))
    await stage.until_admitted(fine)


@story()
async def test_unknown_fields_are_kept_and_ignored(stage: Stage) -> None:
    objects = pool("q", {"cpu": 1}, futureField={"a": [1]})
    await stage.create(*objects)
    obj = job("j", "q", CPU)
    obj["spec"]["futureField"] = {"b": 2}
    made = await stage.create(obj)
    await stage.until_admitted(made)


@story()
async def test_one_queue_written_in_both_versions_is_one_queue(stage: Stage) -> None:
    old, new = (pool("q", {"cpu": quota})[1] for quota in (1, 2))
    old["apiVersion"] = "kueue.x-k8s.io/v1beta1"
    old["spec"]["cohort"] = "all"
    new["spec"]["cohortName"] = "all"
    flavor, _, local = pool("q", {"cpu": 1})
    await stage.create(flavor, old, local)
    first = await stage.create(job("one", "q", CPU))
    second = await stage.create(job("two", "q", CPU))
    await stage.until_admitted(first)
    assert not await stage.is_admitted(second)
    await stage.patch(new, {"spec": new["spec"]})
    await stage.until_admitted(second)
    again = await stage.kube.get(stage.kind(old), None, "q")
    assert (again["apiVersion"], again["spec"]["cohort"]) == ("kueue.x-k8s.io/v1beta1", "all")
    assert (await stage.fresh(new))["spec"]["cohortName"] == "all"
