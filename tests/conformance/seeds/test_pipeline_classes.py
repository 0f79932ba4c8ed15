"""Document 000: priority classes and requests of PipelineRuns."""

from pathlib import Path

import pytest
import yaml

from services.classifier.cel import CelEngine
from services.classifier.rules import parse_rules
from services.classifier.webhook.mutation import mutate
from shared.contracts.kube import names
from shared.contracts.kube.kinds import Object
from tests.conformance.classification import compare_pipeline_runs
from tests.conformance.seeds.pipeline_queues import QUEUE, SLOT, TENANT, of_size
from tests.conformance.seeds.says import FOLDER, says
from tests.conformance.seeds.stage import Stage, example, pipeline_run, pool, story

SAMPLES = FOLDER.parent / "samples" / "classification" / "konflux_cases.yaml"


PRODUCTION = Path("deploy/examples/konflux/classifier/config.yaml").read_text()

"""The configuration of the document, unchanged."""


CLASSES = {
    "konflux-release": 1000,
    "konflux-tenant-release": 900,
    "konflux-post-merge-test": 800,
    "konflux-post-merge-build": 700,
    "konflux-pre-merge-test": 600,
    "konflux-pre-merge-build": 500,
    "konflux-default": 400,
    "konflux-dependency-update": 300,
}


@says("000:80-88", "000:90-147")
def test_classes_have_the_values_of_the_table() -> None:
    made = example("011-priority-classes.yaml")
    assert {obj["metadata"]["name"]: obj["value"] for obj in made} == CLASSES


@says("000:19", "000:76-78")
@story(rules=PRODUCTION)
async def test_critical_runs_go_first_whatever_the_order_of_their_creation(stage: Stage) -> None:
    await stage.create(
        *of_size(example("010-pipeline-quota.yaml"), 1), *example("011-priority-classes.yaml")
    )

    def typed(name: str, **labels: str) -> Object:
        there = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
        return pipeline_run(name, namespace=TENANT, seconds=30, labels=there)

    pac, test = (
        "pipelinesascode.tekton.dev/event-type",
        "pac.test.appstudio.openshift.io/event-type",
    )
    service = "appstudio.openshift.io/service"
    wanted = [
        pipeline_run("full", namespace=TENANT, seconds=30),
        typed("nudge", **{"build.appstudio.openshift.io/type": "nudge"}),
        typed("other"),
        typed("pull", **{pac: "pull_request"}),
        typed("pull-test", **{test: "pull_request"}),
        typed("push", **{pac: "push"}),
        typed("push-test", **{test: "push"}),
        typed(
            "release",
            **{service: "release", "pipelines.appstudio.openshift.io/type": "managed"},
        ),
    ]
    runs = [await stage.create(run) for run in wanted]

    await stage.until_finished(*runs, seconds=900)
    fresh = [await stage.fresh(run) for run in runs]
    started = [(run["status"]["startTime"], run["metadata"]["name"]) for run in fresh]
    assert [name for _, name in sorted(started)] == [
        "full",
        "release",
        "push-test",
        "push",
        "pull-test",
        "pull",
        "other",
        "nudge",
    ]


@says("000:149-151", "000:299-307")
def test_every_run_of_the_sample_gets_class_and_requests_by_configuration() -> None:
    rules = parse_rules(PRODUCTION, CelEngine())
    cases = yaml.safe_load(SAMPLES.read_text())["cases"]

    outcomes = list(compare_pipeline_runs(cases, rules))

    assert [outcome for outcome in outcomes if not outcome.matches] == []
    assert {outcome.expected.get("priorityClass") for outcome in outcomes} >= {
        "konflux-release",
        "konflux-dependency-update",
        "konflux-default",
    }


def classified(**run: object) -> tuple[str, dict[str, str]]:
    """The class that the production configuration gives to a run, and its requests."""
    rules = parse_rules(PRODUCTION, CelEngine())
    made = mutate(pipeline_run("run", **run), rules, namespace="team-a").object["metadata"]  # type: ignore[arg-type]
    prefix = names.REQUESTS_PREFIX
    requests = {
        key.removeprefix(prefix): value
        for key, value in made["annotations"].items()
        if key.startswith(prefix)
    }
    return made["labels"][names.PRIORITY_CLASS_LABEL], requests


def platforms(*values: str) -> Object:
    return {"params": [{"name": "build-platforms", "value": list(values)}]}


def by_task(*values: str) -> Object:
    tasks = [
        {
            "name": f"task-{number}",
            "taskSpec": {"steps": [{"name": "s", "image": "i"}]},
            "params": [{"name": "PLATFORM", "value": value}],
        }
        for number, value in enumerate(values)
    ]
    return {"pipelineSpec": {"tasks": tasks}}


@says("000:155-168", "000:170-191")
def test_each_platform_in_build_platforms_is_a_slot_and_those_of_aws_need_an_address_too() -> None:
    _, requests = classified(**platforms("linux/arm64", "linux/s390x", "linux-mlarge/amd64_x"))
    assert requests == {
        "linux-arm64": "1",
        "linux-s390x": "1",
        "linux-mlarge-amd64-x": "1",
        "aws-ip": "2",
    }


@says("000:193-210", "000:212-241")
def test_platforms_that_tasks_name_count_where_the_run_lists_none() -> None:
    _, requests = classified(**by_task("linux/arm64", "linux/arm64", "linux/ppc64le"))
    assert requests == {"linux-arm64": "2", "linux-ppc64le": "1", "aws-ip": "2"}


@says("000:193-210", "000:212-241")
def test_platforms_that_tasks_name_do_not_count_where_the_run_lists_some() -> None:
    _, requests = classified(**platforms("localhost"), **by_task("linux/arm64"))
    assert requests == {"localhost": "1"}


MATCHES: dict[str, tuple[Object, str]] = {
    "a nudge": ({"build.appstudio.openshift.io/type": "nudge"}, "konflux-dependency-update"),
    "a push": ({"pipelinesascode.tekton.dev/event-type": "push"}, "konflux-post-merge-build"),
    "a merge request": (
        {"pipelinesascode.tekton.dev/event-type": "Merge_Request"},
        "konflux-pre-merge-build",
    ),
    "an integration test of a push": (
        {"pac.test.appstudio.openshift.io/event-type": "push"},
        "konflux-post-merge-test",
    ),
    "an integration test of a pull request": (
        {"pac.test.appstudio.openshift.io/event-type": "pull_request"},
        "konflux-pre-merge-test",
    ),
    "a managed release": (
        {
            "appstudio.openshift.io/service": "release",
            "pipelines.appstudio.openshift.io/type": "managed",
        },
        "konflux-release",
    ),
    "a release of the tenant": (
        {
            "appstudio.openshift.io/service": "release",
            "release.appstudio.openshift.io/namespace": "team-a",
        },
        "konflux-tenant-release",
    ),
    "a release of another tenant": (
        {
            "appstudio.openshift.io/service": "release",
            "release.appstudio.openshift.io/namespace": "team-b",
        },
        "konflux-default",
    ),
    "an internal service": (
        {"internal-services.appstudio.openshift.io/pipelinerun-uid": "u"},
        "konflux-release",
    ),
    "anything else": ({"app": "x"}, "konflux-default"),
}


@says(
    "000:249-254",
    "000:256-269",
    "000:271-276",
    "000:278-283",
    "000:287-289",
    "000:291",
    "000:299-307",
)
@pytest.mark.parametrize("case", MATCHES.values(), ids=MATCHES)
def test_each_type_of_run_gets_its_tier(case: tuple[Object, str]) -> None:
    labels, wanted = case
    assert classified(labels=labels)[0] == wanted


@says("000:243-247", "000:285", "000:297")
@story(rules=PRODUCTION)
async def test_quota_on_mintmaker_limits_dependency_updates_and_leaves_room_for_others(
    stage: Stage,
) -> None:
    both = ("mintmaker", "team-a")
    quota = {SLOT: 5, "mintmaker": 2}
    await stage.create(*pool("builds", quota, namespaces=both, local=QUEUE))
    await stage.create(*example("011-priority-classes.yaml"))
    updates = [
        await stage.create(pipeline_run(f"update-{n}", namespace="mintmaker")) for n in range(4)
    ]
    build = await stage.create(pipeline_run("build", namespace="team-a"))

    await stage.until_admitted(build, *updates[:2])
    for one in updates[2:]:
        await stage.until_waits(one, "insufficient unused quota for mintmaker")
    await stage.settle(60)
    assert [await stage.runs(one) for one in updates] == [True, True, False, False]
    labels = updates[0]["metadata"]["labels"]
    assert labels[names.PRIORITY_CLASS_LABEL] == "konflux-dependency-update"
