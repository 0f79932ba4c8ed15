"""The demo's load is the same for the same seed, and comes out as its labels promise."""

from collections import Counter

from services.classifier.webhook.mutation import mutate
from services.ctl.admin.mutate import load_rules
from services.ctl.demo.load import TIERS, make_load
from services.ctl.dev.app import EXAMPLE
from shared.contracts.kube import kinds, names
from shared.integrations import JOB, PIPELINE_RUN


def test_equal_seeds_make_equal_loads_and_different_seeds_different_ones() -> None:
    first = make_load(seed=1, runs=80, jobs=12)
    assert make_load(seed=1, runs=80, jobs=12) == first
    assert make_load(seed=2, runs=80, jobs=12) != first


def test_tiers_arrive_evenly_and_names_are_unique() -> None:
    load = make_load(seed=3, runs=600, jobs=100)
    runs = [arrival for arrival in load if arrival.kind == kinds.PIPELINE_RUN]
    for start in range(0, len(runs), len(TIERS)):
        assert {arrival.tier for arrival in runs[start : start + len(TIERS)]} == set(TIERS)
    found = Counter((a.object["metadata"]["namespace"], a.object["metadata"]["name"]) for a in load)
    assert len(found) == 700


def test_generated_objects_are_not_suspended() -> None:
    for arrival in make_load(seed=1, runs=200, jobs=40):
        integration = PIPELINE_RUN if arrival.kind == kinds.PIPELINE_RUN else JOB
        assert not integration.held(arrival.object)
        assert "suspend" not in arrival.object["spec"]


def test_rules_give_each_generated_object_its_tier() -> None:
    rules = load_rules(EXAMPLE / "classifier")
    resources: Counter[str] = Counter()
    for arrival in make_load(seed=1, runs=400, jobs=40):
        made = mutate(arrival.object, rules).object["metadata"]
        assert made["labels"][names.PRIORITY_CLASS_LABEL] == arrival.tier, arrival.object
        resources.update(
            key.removeprefix(names.REQUESTS_PREFIX)
            for key in made.get("annotations") or {}
            if key.startswith(names.REQUESTS_PREFIX)
        )
    assert set(resources) == {
        "aws-ip",
        "linux-amd64",
        "linux-arm64",
        "linux-ppc64le",
        "linux-s390x",
        "linux-x86-64",
        "mintmaker",
    }
