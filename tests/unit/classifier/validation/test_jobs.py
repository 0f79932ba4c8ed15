"""Validation of Jobs, and answers to arbitrary objects of every kind."""

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.classifier.validation import RULES, validate
from shared.contracts.kube.kinds import Object
from tests.unit.classifier.validation.objects import cohort, group, obj, queue, said

FINE: Final = {
    "a queue with all there is": queue(
        group("a", "b", covered=("cpu", "tekton.dev/pipelineruns"), borrowingLimit=1),
        group("c", covered=("memory",), nominal="2Gi", lendingLimit="2048Mi"),
        cohortName="research",
        namespaceSelector={
            "matchLabels": {"team": ""},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}],
        },
        preemption={
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 1},
        },
        flavorFungibility={
            "whenCanBorrow": "TryNextFlavor",
            "preference": "PreemptionOverBorrowing",
        },
        fairSharing={"weight": "500m"},
        admissionChecksStrategy={"admissionChecks": [{"name": "m", "onFlavors": ["a"]}]},
    ),
    "a queue of nothing": queue(namespaceSelector={}),
    "a cohort that lends more than it has": cohort(
        group("a", nominal=1, lendingLimit=5), parentName="root"
    ),
    "a flavor that is only a name": obj("ResourceFlavor"),
    "a job that waits": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"parallelism": 2},
    },
    "a kind without rules": {"apiVersion": "v1", "kind": "Pod", "spec": 7},
}


@pytest.mark.parametrize("new", FINE.values(), ids=list(FINE))
def test_valid_object_has_no_problems(new: Object) -> None:
    assert said(new) == []
    assert said(new, new) == []


# Jobs ----------------------------------------------------------------------------------------------

QUEUE: Final = "kueue.x-k8s.io/queue-name"


CLASS: Final = "kueue.x-k8s.io/priority-class"


LIMIT: Final = "kueue.x-k8s.io/max-exec-time-seconds"


LEAST: Final = "kueue.x-k8s.io/job-min-parallelism"


def job(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    *,
    suspend: bool = True,
    **spec: Any,
) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"suspend": suspend, "template": {}, **spec},
    }


TEMPLATE: Final = "spec.template.metadata.annotations"
SLICE: Final = "kueue.x-k8s.io/podset-slice"


def slices(size: str) -> Object:
    asked = {f"{SLICE}-required-topology": "rack", f"{SLICE}-size": size}
    return {"metadata": {"annotations": asked}}


JOBS: Final[dict[str, tuple[Object | None, Object, list[str]]]] = {
    "a queue that cannot be one": (
        None,
        job({QUEUE: "Not_A_Name"}),
        [
            (
                f'metadata.labels[{QUEUE}]: Invalid value: "Not_A_Name": must be a lowercase RFC 1123 '
                "subdomain: lower case letters, digits, '-' or '.', with a letter or a digit at both ends"
            )
        ],
    ),
    "a limit in words": (
        None,
        job({LIMIT: "soon"}),
        [f'metadata.labels[{LIMIT}]: Invalid value: "soon": must be an integer'],
    ),
    "no time at all": (
        None,
        job({LIMIT: "0"}),
        [f"metadata.labels[{LIMIT}]: Invalid value: 0: should be greater than 0"],
    ),
    "more time than a Workload holds": (
        None,
        job({LIMIT: "999999999999"}),
        [
            (
                f"metadata.labels[{LIMIT}]: Invalid value: 999999999999: "
                "should be less than or equal to 2147483647"
            )
        ],
    ),
    "at least as many as there are": (
        None,
        job(annotations={LEAST: "3"}, parallelism=3),
        [f"metadata.annotations[{LEAST}]: Invalid value: 3: should be between 0 and 2"],
    ),
    "two topologies": (
        None,
        job(
            template={
                "metadata": {
                    "annotations": {
                        "kueue.x-k8s.io/podset-required-topology": "rack",
                        "kueue.x-k8s.io/podset-preferred-topology": "rack",
                    }
                }
            }
        ),
        [
            (
                "spec.template.metadata.annotations: Invalid value: "
                '["kueue.x-k8s.io/podset-preferred-topology", '
                '"kueue.x-k8s.io/podset-required-topology"]: must not contain more than one topology '
                "annotation: ['kueue.x-k8s.io/podset-preferred-topology', "
                "'kueue.x-k8s.io/podset-required-topology']"
            )
        ],
    ),
    "a slice of more pods than there are": (
        None,
        job(parallelism=3, completions=2, template=slices("3")),
        [f'{TEMPLATE}[{SLICE}-size]: Invalid value: "3": must not be greater than pod set count 2'],
    ),
    "a slice of no pods": (
        None,
        job(template=slices("0")),
        [f'{TEMPLATE}[{SLICE}-size]: Invalid value: "0": must be greater than or equal to 1'],
    ),
    "a slice of many pods": (
        None,
        job(template=slices("many")),
        [f'{TEMPLATE}[{SLICE}-size]: Invalid value: "many": must be a numeric value'],
    ),
    "another queue while it runs": (
        job({QUEUE: "a"}, suspend=False),
        job({QUEUE: "b"}, suspend=False),
        [f'metadata.labels[{QUEUE}]: Invalid value: "b": field is immutable'],
    ),
    "no queue any more while it runs": (
        job({QUEUE: "a"}, suspend=False),
        job(suspend=False),
        [f'metadata.labels[{QUEUE}]: Invalid value: "": field is immutable'],
    ),
    "running and no queue any more at once": (
        job({QUEUE: "a"}),
        job(suspend=False),
        [f'metadata.labels[{QUEUE}]: Invalid value: "": field is immutable'],
    ),
    "another queue while it waits": (job({QUEUE: "a"}), job({QUEUE: "b"}), []),
    "a job of nobody's": (job(suspend=False), job({"a": "b"}, suspend=False), []),
    "a class while it runs": (
        job(suspend=False),
        job({CLASS: "high"}, suspend=False),
        [
            (
                f'metadata.labels[{CLASS}]: Invalid value: "high": '
                "WorkloadPriorityClass cannot be added to a non-suspended workload"
            )
        ],
    ),
    "no class any more": (
        job({CLASS: "high"}),
        job(),
        [
            (
                f'metadata.labels[{CLASS}]: Invalid value: "": '
                "WorkloadPriorityClass cannot be removed from a workload"
            )
        ],
    ),
    "more time as it starts": (
        job({LIMIT: "1"}),
        job({LIMIT: "2"}, suspend=False),
        [f'metadata.labels[{LIMIT}]: Invalid value: "2": field is immutable'],
    ),
    "as few pods as were admitted": (
        job(annotations={LEAST: "4"}, parallelism=6),
        job(annotations={LEAST: "4"}, parallelism=3, suspend=False),
        [],
    ),
    "at least as many as there are, later": (
        job(annotations={LEAST: "1"}, parallelism=3),
        job(annotations={LEAST: "3"}, parallelism=3),
        [f"metadata.annotations[{LEAST}]: Invalid value: 3: should be between 0 and 2"],
    ),
    "more pods than were admitted": (
        job(annotations={LEAST: "1"}, parallelism=2, suspend=False),
        job(annotations={LEAST: "1"}, parallelism=3, suspend=False),
        [
            (
                "spec.parallelism: Forbidden: "
                "cannot change when partial admission is enabled and the job is not suspended"
            )
        ],
    ),
}


@pytest.mark.parametrize(("old", "new", "problems"), JOBS.values(), ids=list(JOBS))
def test_job_has_problems(old: Object | None, new: Object, problems: list[str]) -> None:
    assert said(new, old) == problems


# Anything at all -----------------------------------------------------------------------------------

junk: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "-1", "cpu"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("spec", "status", "metadata", "labels", "annotations", "podSets", "levels"),
                    *("resourceGroups", "flavors", "resources", "name", "count", "admission"),
                    *("conditions", "type", "podSetAssignments", "template", "nodeTaints", QUEUE),
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("kind", sorted(RULES))
def test_arbitrary_object_gets_an_answer(kind: tuple[str, str]) -> None:
    group_, name = kind
    version = "v1" if group_ == "batch" else "v1beta2"

    @settings(max_examples=60)
    @given(junk, junk, junk)
    def answers(spec: Any, status: Any, metadata: Any) -> None:
        head = {"apiVersion": f"{group_}/{version}", "kind": name}
        new = {**head, "metadata": metadata, "spec": spec, "status": status}
        old = {**head, "metadata": spec, "spec": status, "status": metadata}
        for before in (None, new, old):
            for problem in validate(new, before):
                assert str(problem)
        assert [p for p in validate(new, new) if "immutable" in p.detail] == []

    answers()
