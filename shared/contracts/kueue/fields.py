"""Types of single fields, and the small parts that several kinds share."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field, PlainValidator, StringConstraints, WithJsonSchema

from shared.contracts.kube.names import DNS_LABEL, LABEL_NAME, SUBDOMAIN
from shared.contracts.kube.numbers import INT32_MAX
from shared.contracts.kube.quantities import parse_quantity
from shared.contracts.kueue.schema import ApiModel, Extra, keyed, listed, rules

_DNS_NAME: Final = SUBDOMAIN.pattern
_QUALIFIED: Final = rf"({_DNS_NAME}/)?({LABEL_NAME.pattern})"
_NUMBER: Final = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
_QUANTITY: Final = rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$"
_EFFECTS: Final = "['NoSchedule', 'PreferNoSchedule', 'NoExecute']"

DnsName = Annotated[str, StringConstraints(pattern=f"^{_DNS_NAME}$", max_length=253)]
"""What most objects may be called."""

DnsLabel = Annotated[str, StringConstraints(pattern=f"^{DNS_LABEL.pattern}$", max_length=63)]
LabelKey = Annotated[
    str, StringConstraints(pattern=f"^{_QUALIFIED}$", min_length=1, max_length=317)
]
ResourceName = Annotated[str, StringConstraints(min_length=1, max_length=317)]

Int32 = Annotated[int, Field(ge=-INT32_MAX - 1, le=INT32_MAX), Extra({"format": "int32"})]
Int64 = Annotated[int, Extra({"format": "int64"})]
Count = Annotated[int, Field(ge=0, le=INT32_MAX), Extra({"format": "int32"})]
Positive = Annotated[int, Field(ge=1, le=INT32_MAX), Extra({"format": "int32"})]
Time = Annotated[str, Extra({"format": "date-time"})]
Metadata = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]


def _quantity(value: Any) -> int | str:
    """Raises `ValueError` for what is no quantity."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("must be an integer or a string such as 500m or 2Gi")  # noqa: TRY004
    parse_quantity(str(value))
    return value


Quantity = Annotated[
    int | str,
    PlainValidator(_quantity),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": _QUANTITY,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
"""A number with a suffix such as `500m` or `2Gi`, or an integer."""

PodTemplate = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]
"""Kept as it is: its fields are Kubernetes' own, and change with every release of it."""


class Condition(ApiModel):
    """One aspect of where an object stands."""

    type: Annotated[str, StringConstraints(pattern=f"^{_QUALIFIED}$", max_length=316)]
    """What this is about."""

    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""

    observed_generation: Annotated[int, Field(ge=0), Extra({"format": "int64"})] | None = None
    """The `metadata.generation` of which this is said."""

    last_transition_time: Time
    """Since when the status is what it is."""

    reason: Annotated[
        str,
        StringConstraints(
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", min_length=1, max_length=1024
        ),
    ]
    """Why, as one word for programs."""

    message: Annotated[str, StringConstraints(max_length=32768)]
    """Why, as a sentence for people."""


Conditions = Annotated[list[Condition], Field(max_length=16), keyed("type")]


class LabelExpression(ApiModel):
    """One requirement of a selector."""

    key: str
    """The label."""

    operator: str
    """`In`, `NotIn`, `Exists` or `DoesNotExist`."""

    values: Annotated[list[str], listed("atomic")] | None = None
    """Of which the label must, or must not, have one; empty for `Exists` and `DoesNotExist`."""


class LabelSelector(ApiModel):
    """Selects objects by their labels; all requirements must be met, none selects everything."""

    match_labels: dict[str, str] | None = None
    """Labels that must have exactly these values."""

    match_expressions: Annotated[list[LabelExpression], listed("atomic")] | None = None
    """Further requirements."""


class Taint(ApiModel):
    """Keeps away from a node what does not tolerate it."""

    key: str
    """Label key of the taint."""

    value: str | None = None
    """Its value."""

    effect: str
    """`NoSchedule`, `PreferNoSchedule` or `NoExecute`."""

    time_added: Time | None = None
    """When it was put on the node; only for `NoExecute`."""


class Toleration(ApiModel):
    """Lets pods onto nodes that have a taint."""

    key: str | None = None
    """The taint's key; absent for all taints."""

    operator: str | None = None
    """`Equal`, which is the default, or `Exists`."""

    value: str | None = None
    """The taint's value, for `Equal`."""

    effect: str | None = None
    """The taint's effect; absent for all effects."""

    toleration_seconds: Int64 | None = None
    """How long a `NoExecute` taint is tolerated; absent forever."""


Tolerations = Annotated[
    list[Toleration],
    Field(max_length=8),
    listed("atomic"),
    rules(
        (
            "self.all(t, has(t.key) || (has(t.operator) && t.operator == 'Exists'))",
            "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
        ),
        (
            "self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))",
            "effect must be 'NoExecute' when 'tolerationSeconds' is set",
        ),
        (
            "self.all(t, !has(t.operator) || t.operator in ['Equal', 'Exists'])",
            "supported toleration values: 'Equal'(default), 'Exists'",
        ),
        (
            "self.all(t, !has(t.value) || !has(t.operator) || t.operator != 'Exists')",
            "a value must be empty when 'operator' is 'Exists'",
        ),
        (
            f"self.all(t, !has(t.effect) || t.effect in {_EFFECTS})",
            "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
        ),
    ),
]
