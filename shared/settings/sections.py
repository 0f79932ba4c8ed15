"""What the sections of Kueue's Configuration have in common: their form, and selectors of labels."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel


class Section(BaseModel):
    """One section: immutable, with Kueue's names, and nothing that it does not know."""

    model_config = ConfigDict(
        frozen=True,
        defer_build=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
    )


class LabelRequirement(Section):
    """One expression of a label selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _values_match_operator(self) -> "LabelRequirement":
        if bool(self.values) != (self.operator in {"In", "NotIn"}):
            raise ValueError(f"values: only and always with In and NotIn, got {self.operator}")
        return self

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet the requirement."""
        if self.operator == "In":
            return labels.get(self.key) in self.values
        if self.operator == "NotIn":
            return labels.get(self.key) not in self.values
        return (self.key in labels) == (self.operator == "Exists")


class LabelSelector(Section):
    """Objects, by their labels; an empty one means all."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is meant."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            requirement.holds(labels) for requirement in self.match_expressions
        )
