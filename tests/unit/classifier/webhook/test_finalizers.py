"""Queues and flavors have Kueue's finalizer from the beginning."""

from typing import Any

import jsonpatch
import pytest

from services.classifier.webhook.mutation import mutate
from shared.contracts.kube.kinds import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    COHORT,
    RESOURCE_FLAVOR,
    Kind,
)
from shared.contracts.kube.names import RESOURCE_IN_USE
from tests.unit.classifier.webhook.objects import rules


def an_object(kind: Kind, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "x", **metadata},
        "spec": {},
    }


@pytest.mark.parametrize("given", [None, [], ["example.com/f"]])
@pytest.mark.parametrize("kind", [CLUSTER_QUEUE, RESOURCE_FLAVOR], ids=lambda kind: kind.kind)
def test_finalizer_is_added_once_behind_those_of_others(
    kind: Kind, given: list[str] | None
) -> None:
    obj = an_object(kind, **({} if given is None else {"finalizers": given}))
    result = mutate(obj, rules())
    assert result.object["metadata"]["finalizers"] == [*(given or []), RESOURCE_IN_USE]
    assert jsonpatch.apply_patch(obj, result.patch) == result.object
    assert mutate(result.object, rules()).patch == ()


@pytest.mark.parametrize("kind", [ADMISSION_CHECK, COHORT], ids=lambda kind: kind.kind)
def test_other_kinds_get_none_from_the_webhook(kind: Kind) -> None:
    assert mutate(an_object(kind), rules()).patch == ()


def test_same_kind_of_another_group_is_left_alone() -> None:
    obj = an_object(CLUSTER_QUEUE) | {"apiVersion": "example.com/v1"}
    assert mutate(obj, rules()).patch == ()
