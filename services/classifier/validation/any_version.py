"""Validates an object in any version of its kind: rules use the fields of the storage version."""

from typing import NamedTuple

from services.classifier.conversion.convert import ConversionError, convert
from services.classifier.refusal import RefusedError, WebhookRule
from services.classifier.validation.problems import Problem
from services.classifier.validation.shape import shape_problems
from services.classifier.validation.table import validate
from shared.contracts.kube.kinds import KUEUE_GROUP, Object
from shared.contracts.kueue.definitions import STORAGE


class Verdict(NamedTuple):
    """What is wrong with an object."""

    problems: list[Problem]
    breaks_definition: bool
    """It does not fit the model of its kind, so that its definition refuses it, too."""


def judge(obj: Object, old: Object | None) -> Verdict:
    """Return what is wrong with `obj`; `old`: None for a new object. Raises `RefusedError`."""
    try:
        stored = _in_storage_version(obj)
        problems = validate(stored, None if old is None else _in_storage_version(old))
    except ConversionError as error:
        raise RefusedError(WebhookRule.CONVERSION, problem=error) from error
    return Verdict(problems, bool(problems and shape_problems(stored, str(stored.get("kind")))))


def _in_storage_version(obj: Object) -> Object:
    group, _, version = str(obj.get("apiVersion")).rpartition("/")
    ours = group == KUEUE_GROUP and version != STORAGE
    return convert(obj, f"{KUEUE_GROUP}/{STORAGE}") if ours else obj
