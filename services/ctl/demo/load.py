"""The demo's load: PipelineRuns of all eight tiers and Jobs, the same for the same seed.

No PipelineRun carries Pending, `suspend`, a queue or a priority class: the webhook adds them by its rules,
from labels. Jobs name their queue and class themselves, because the rules are for PipelineRuns.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import Kind
from shared.contracts.simulation import DURATION

PREFIX: Final = "konflux-"
TIERS: Final = (
    "konflux-release",
    "konflux-tenant-release",
    "konflux-post-merge-test",
    "konflux-post-merge-build",
    "konflux-pre-merge-test",
    "konflux-pre-merge-build",
    "konflux-default",
    "konflux-dependency-update",
)
"""The example's priority classes, most important first."""

JOB_CLASSES: Final = ("konflux-post-merge-test", "konflux-default", "konflux-dependency-update")

ARRIVAL_SECONDS: Final = 15.0
"""All objects arrive within this wall-clock time, faster than they can run."""

RUN_MINUTES: Final = (8.0, 16.0)
"""Bounds of the running time in simulated time, as builds and tests take."""

JOB_MINUTES: Final = (5.0, 9.0)
TENANTS: Final = ("team-tenant", "alpha-tenant", "beta-tenant", "gamma-tenant")
RELEASE_TENANT: Final = "releng-tenant"
MINTMAKER: Final = "mintmaker"
BATCH_QUEUE: Final = "batch-queue"

_SERVICE: Final = "appstudio.openshift.io/service"
_RELEASE_TYPE: Final = "pipelines.appstudio.openshift.io/type"
_RELEASE_NAMESPACE: Final = "release.appstudio.openshift.io/namespace"
_BUILD_TYPE: Final = "build.appstudio.openshift.io/type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One object that a user creates."""

    after_seconds: float
    """Since the load began."""

    kind: Kind
    object: Body
    tier: str
    """The priority class that the webhook must choose."""


def make_load(*, seed: int, runs: int, jobs: int) -> list[Arrival]:
    """Build the load, in the order of arrival.

    Tiers arrive mixed but evenly: each block of eight holds every tier once, and all builds of a block
    have one shape. So workloads that are compared arrive at the same time.
    """
    rng = Random(seed)
    arrivals = [*_spread(list(_runs(rng, runs))), *_spread(list(_jobs(rng, jobs)))]
    return sorted(arrivals, key=lambda arrival: arrival.after_seconds)


def _spread(made: list[Arrival]) -> Iterator[Arrival]:
    for index, arrival in enumerate(made):
        yield Arrival(
            after_seconds=ARRIVAL_SECONDS * index / len(made),
            kind=arrival.kind,
            object=arrival.object,
            tier=arrival.tier,
        )


def _runs(rng: Random, count: int) -> Iterator[Arrival]:
    for index in range(count):
        place = index % len(TIERS)
        if place == 0:
            block = rng.sample(TIERS, len(TIERS))
            plain = index // len(TIERS) % 2 == 0
            build = "plain" if plain else rng.choices(_BUILDS, weights=_BUILD_WEIGHTS)[0]
        tier = block[place]
        shape = build if tier.endswith("-build") else _without_machines(rng)
        yield _run(rng, tier, shape, index)


def _run(rng: Random, tier: str, shape: str, index: int) -> Arrival:
    namespace, labels = _labels(rng, tier, index)
    obj: Body = {
        "apiVersion": kinds.PIPELINE_RUN.api_version,
        "kind": kinds.PIPELINE_RUN.kind,
        "metadata": {
            "namespace": namespace,
            "name": f"{tier.removeprefix(PREFIX)}-{index:04d}",
            "labels": labels,
            "annotations": {DURATION: _minutes(rng, RUN_MINUTES)},
        },
        "spec": _SHAPES[shape](),
    }
    return Arrival(after_seconds=0.0, kind=kinds.PIPELINE_RUN, object=obj, tier=tier)


def _labels(rng: Random, tier: str, index: int) -> tuple[str, dict[str, str]]:
    """The namespace of a run of `tier`, and the labels that the rules recognise it by."""
    tenant = rng.choice(TENANTS)
    match tier.removeprefix(PREFIX):
        case "release":
            return RELEASE_TENANT, {_SERVICE: "release", _RELEASE_TYPE: "managed"}
        case "tenant-release":
            return tenant, {_SERVICE: "release", _RELEASE_NAMESPACE: tenant}
        case "post-merge-test":
            return tenant, {names.PAC_TEST_EVENT: "push"}
        case "post-merge-build":
            return tenant, {names.PAC_EVENT: "push"}
        case "pre-merge-test":
            return tenant, {names.PAC_TEST_EVENT: "pull_request"}
        case "pre-merge-build":
            return tenant, {names.PAC_EVENT: rng.choice(("pull_request", "retest-comment"))}
        case "dependency-update":
            # Half come from a nudge, half from MintMaker, which has its own limit.
            return (MINTMAKER, {}) if index % 16 >= 8 else (tenant, {_BUILD_TYPE: "nudge"})
        case _:
            return tenant, {}


_BUILDS: Final = ("two-machines", "four-machines", "old-style", "own-pod")
_BUILD_WEIGHTS: Final = (45, 18, 18, 18)


def _without_machines(rng: Random) -> str:
    """Tests and releases differ in their tasks, not in their requests."""
    return "two-tasks" if rng.random() < 0.2 else "plain"


def _platforms(*platforms: str) -> Callable[[], dict[str, Any]]:
    """Builds name their platforms in one parameter."""

    def spec() -> dict[str, Any]:
        return {
            "pipelineRef": {"name": "docker-build-multi-platform"},
            "params": [{"name": "build-platforms", "value": list(platforms)}],
        }

    return spec


def _plain() -> dict[str, Any]:
    return {"pipelineRef": {"name": "docker-build"}}


def _two_tasks() -> dict[str, Any]:
    first: dict[str, Any] = {"name": "init", "taskRef": {"name": "init"}}
    second: dict[str, Any] = {"name": "test", "taskRef": {"name": "test"}, "runAfter": ["init"]}
    return {"pipelineSpec": {"tasks": [first, second]}}


def _old_style() -> dict[str, Any]:
    """Older builds name their platform in a parameter of each task."""
    tasks = [
        {
            "name": f"build-{platform.partition('/')[2]}",
            "taskRef": {"name": "buildah-remote"},
            "params": [{"name": "PLATFORM", "value": platform}],
        }
        for platform in ("linux/arm64", "linux/ppc64le")
    ]
    return {"pipelineSpec": {"tasks": tasks}}


_SHAPES: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "plain": _plain,
    "two-tasks": _two_tasks,
    "two-machines": _platforms("linux/arm64", "linux/amd64"),
    "four-machines": _platforms("linux/arm64", "linux/amd64", "linux/s390x", "linux/ppc64le"),
    "old-style": _old_style,
    "own-pod": _platforms("linux/x86_64", "linux/arm64"),
}


def _jobs(rng: Random, count: int) -> Iterator[Arrival]:
    # Only two shapes, so that each has enough jobs for a comparison.
    shapes = ((2, "1", "2Gi"), (4, "1", "1Gi"))
    for index in range(count):
        place = index % len(JOB_CLASSES)
        if place == 0:
            # All classes of a turn get one shape, so that only the class makes waits differ.
            classes = rng.sample(JOB_CLASSES, len(JOB_CLASSES))
            shape = shapes[index // len(JOB_CLASSES) % len(shapes)]
        yield _job(rng, classes[place], index, *shape)


def _job(rng: Random, class_: str, index: int, parallelism: int, cpu: str, memory: str) -> Arrival:
    annotations = {DURATION: _minutes(rng, JOB_MINUTES)}
    container: dict[str, Any] = {
        "name": "work",
        "image": "registry.example/batch:1",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    obj: Body = {
        "apiVersion": kinds.JOB.api_version,
        "kind": kinds.JOB.kind,
        "metadata": {
            "namespace": rng.choice(TENANTS),
            "name": f"batch-{index:04d}",
            "labels": {names.QUEUE: BATCH_QUEUE, names.PRIORITY_CLASS_LABEL: class_},
        },
        "spec": {
            "parallelism": parallelism,
            "completions": parallelism,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }
    return Arrival(after_seconds=0.0, kind=kinds.JOB, object=obj, tier=class_)


def _minutes(rng: Random, bounds: tuple[float, float]) -> str:
    return f"{rng.uniform(*bounds) * 60:.0f}s"
