"""Evaluates what users send in child processes that can be cut off.

What enters: an object with the rules in force, or a large object to validate, each with its namespace.
What leaves: mutations or problems; or `EvaluationRefusedError`, if the work is invalid, costs too much CPU or
memory, or if too much of its namespace waits already.
"""

from services.classifier.evaluation.budget import Budget, Excess, Measure, measure
from services.classifier.evaluation.expressions import (
    Evaluation,
    EvaluationRefusedError,
    Refusal,
    evaluate,
)
from services.classifier.evaluation.pool import EvaluationPool

__all__ = [
    "Budget",
    "Evaluation",
    "EvaluationPool",
    "EvaluationRefusedError",
    "Excess",
    "Measure",
    "Refusal",
    "evaluate",
    "measure",
]
