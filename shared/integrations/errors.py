"""Errors of integrations: in the document, or when it is applied to one object."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem of a document."""

    field: str
    """`spec.podSets[0].count`; empty for the document as a whole."""

    line: int | None
    """Line of the document, counted from 1. None for an object of the cluster, which has no lines."""

    reason: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{self.field}: {self.reason}" if self.field else f"{where}{self.reason}"


class IntegrationError(ValueError):
    """The document cannot be used. The caller keeps the last good one."""

    def __init__(self, name: str, problems: tuple[Problem, ...]) -> None:
        text = "; ".join(map(str, problems))
        super().__init__(f"Integration {name}: {text}" if name else text)
        self.name = name
        self.problems = problems


class ObjectError(ValueError):
    """A good document fails for this object. The text names document, field and reason."""
