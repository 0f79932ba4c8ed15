"""Decides whether the API server may store an object: pure functions, one table entry for each kind.

What enters: an object in the storage version, and the old one for an update. Nothing is certain of either.
What leaves: the problems of the object, in the form of Kubernetes' field errors.
"""

from services.classifier.validation.any_version import Verdict, judge
from services.classifier.validation.problems import Problem
from services.classifier.validation.table import RULES, validate

__all__ = ["RULES", "Problem", "Verdict", "judge", "validate"]
