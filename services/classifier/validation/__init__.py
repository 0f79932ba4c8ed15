"""Whether the API server may store an object: pure functions, one table entry per kind."""

from services.classifier.validation.problems import Problem
from services.classifier.validation.table import RULES, validate

__all__ = ["RULES", "Problem", "validate"]
