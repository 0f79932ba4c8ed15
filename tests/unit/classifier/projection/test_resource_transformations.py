"""What quota counts of what pods ask for: excluded prefixes and transformations."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.classifier.projection.policy import Policy
from shared.contracts.kube.quantities import format_quantity, parse_quantity
from shared.settings.configuration import Configuration

MIG = "nvidia.com/mig-1g.5gb"


def counted(asked: dict[str, str], **resources: Any) -> dict[str, str]:
    policy = Policy.of(Configuration.model_validate({"resources": resources}))
    amounts = {name: parse_quantity(text) for name, text in asked.items()}
    return {name: format_quantity(v) for name, v in policy.transformations.apply(amounts).items()}


@dataclass(frozen=True, kw_only=True)
class Case:
    asked: dict[str, str]
    counted: dict[str, str]
    transformations: list[dict[str, Any]] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)


def of(input_: str, outputs: dict[str, str], **more: str) -> dict[str, Any]:
    return {"input": input_, "outputs": outputs, **more}


CASES = {
    "without a configuration everything counts as it is asked for": Case(
        asked={"cpu": "1", "x": "2"}, counted={"cpu": "1", "x": "2"}
    ),
    "an excluded prefix does not count": Case(
        asked={"cpu": "1", "example.com/a": "2"}, excluded=["example.com/"], counted={"cpu": "1"}
    ),
    "a retained input counts beside its outputs": Case(
        asked={MIG: "2"},
        transformations=[of(MIG, {"gpu-memory": "5"})],
        counted={MIG: "2", "gpu-memory": "10"},
    ),
    "a replaced one does not": Case(
        asked={MIG: "2", "cpu": "1"},
        transformations=[of(MIG, {"gpu-memory": "5"}, strategy="Replace")],
        counted={"cpu": "1", "gpu-memory": "10"},
    ),
    "replaced by nothing it is ignored": Case(
        asked={MIG: "2"}, transformations=[of(MIG, {}, strategy="Replace")], counted={}
    ),
    "outputs of several inputs add up": Case(
        asked={"a": "1", "b": "2"},
        transformations=[
            of("a", {"sum": "10"}, strategy="Replace"),
            of("b", {"sum": "100"}, strategy="Replace"),
        ],
        counted={"sum": "210"},
    ),
    "an output adds to what was asked for by that name": Case(
        asked={"a": "1", "sum": "5"},
        transformations=[of("a", {"sum": "10"}, strategy="Replace")],
        counted={"sum": "15"},
    ),
    "outputs are multiplied by another resource": Case(
        asked={"gpu": "2", "cpu": "3"},
        transformations=[of("gpu", {"credits": "10"}, multiplyBy="cpu", strategy="Replace")],
        counted={"cpu": "3", "credits": "60"},
    ),
    "what is not asked for multiplies nothing": Case(
        asked={"gpu": "2"},
        transformations=[of("gpu", {"credits": "10"}, multiplyBy="cpu", strategy="Replace")],
        counted={"credits": "20"},
    ),
    "an excluded multiplier multiplies nothing": Case(
        asked={"gpu": "2", "example.com/n": "9"},
        excluded=["example.com/"],
        transformations=[
            of("gpu", {"credits": "10"}, multiplyBy="example.com/n", strategy="Replace")
        ],
        counted={"credits": "20"},
    ),
    "an allowance lessens what is generated": Case(
        asked={"a": "1", "b": "1"},
        transformations=[
            of("a", {"sum": "10"}, strategy="Replace"),
            of("b", {"sum": "-4"}, strategy="Replace"),
        ],
        counted={"sum": "6"},
    ),
    "an allowance never lessens what was asked for": Case(
        asked={"a": "1", "sum": "5"},
        transformations=[of("a", {"sum": "-10"}, strategy="Replace")],
        counted={"sum": "5"},
    ),
    "fractions are exact": Case(
        asked={"a": "333m"},
        transformations=[of("a", {"b": "3m"}, strategy="Replace")],
        counted={"b": "999u"},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_requests_are_transformed(case: Case) -> None:
    resources = {"excludeResourcePrefixes": case.excluded, "transformations": case.transformations}
    assert counted(case.asked, **resources) == case.counted


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "two of one input": ({"transformations": [of("a", {}), of("a", {})]}, "two transformations"),
    "an unknown strategy": ({"transformations": [of("a", {}, strategy="Drop")]}, "Retain"),
    "a bad amount": ({"transformations": [of("a", {"b": "1_0"})]}, "no quantity"),
    "no input": ({"transformations": [of("", {})]}, "at least 1 character"),
    "an empty prefix, which would be everything": (
        {"excludeResourcePrefixes": [""]},
        "at least 1 character",
    ),
    "a misspelt field": ({"transformation": []}, "Extra inputs"),
    "a strategy that Kueue does not have": ({"quotaCheckStrategy": "Ignore"}, "BlockUnd"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_invalid_transformation_is_refused_with_message(case: tuple[dict[str, Any], str]) -> None:
    resources, why = case
    with pytest.raises(ValueError, match=why):
        counted({}, **resources)


@given(st.dictionaries(st.sampled_from("abc"), st.integers(0, 10**6).map(str)))
def test_transformed_amounts_are_never_negative(asked: dict[str, str]) -> None:
    transformations = [of("a", {"b": "-7", "c": "2"}), of("b", {"c": "-3"}, strategy="Replace")]
    amounts = counted(asked, transformations=transformations)
    assert all(parse_quantity(text) >= 0 for text in amounts.values())
