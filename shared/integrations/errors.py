"""What can be wrong with an integration: the document, or what it makes of one object."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with a document."""

    field: str
    """`spec.podSets[0].count`; empty for the document as a whole."""

    line: int | None
    """Of the document, from 1; None where it came without lines, from the cluster."""

    reason: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{self.field}: {self.reason}" if self.field else f"{where}{self.reason}"


class IntegrationError(ValueError):
    """A document cannot be used. Keep the last good one."""

    def __init__(self, name: str, problems: tuple[Problem, ...]) -> None:
        said = "; ".join(map(str, problems))
        super().__init__(f"Integration {name}: {said}" if name else said)
        self.name = name
        self.problems = problems


class ObjectError(ValueError):
    """A good document fails on this object. The text names document, field and reason."""
