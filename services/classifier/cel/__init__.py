"""Expressions of the Common Expression Language (CEL), compiled once and evaluated for every object.

What enters: the texts of the configuration, then one object after the other.
What leaves: mutations that set labels, annotations and `spec.managedBy`, or add requests. Nothing is
applied here.
"""

from services.classifier.cel.compile import EXPRESSION_CHARS_MAX, CelEngine
from services.classifier.cel.errors import CompileError, EvaluationError
from services.classifier.cel.evaluate import Programs, Variables
from services.classifier.cel.mutations import (
    AddRequest,
    Mutation,
    SetAnnotation,
    SetLabel,
    SetManager,
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
    "SetManager",
    "Variables",
]
