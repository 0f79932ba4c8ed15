"""Expressions of the Common Expression Language: compiled once, evaluated for every object."""

from services.classifier.cel.compile import EXPRESSION_CHARS_MAX, CelEngine
from services.classifier.cel.errors import CompileError, EvaluationError
from services.classifier.cel.evaluate import Programs, Variables
from services.classifier.cel.mutations import (
    AddRequest,
    Mutation,
    SetAnnotation,
    SetLabel,
)

__all__ = [
    "EXPRESSION_CHARS_MAX",
    "AddRequest",
    "CelEngine",
    "CompileError",
    "EvaluationError",
    "Mutation",
    "Programs",
    "SetAnnotation",
    "SetLabel",
    "Variables",
]
