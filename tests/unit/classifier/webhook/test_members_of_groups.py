"""What a pod says of its group is fixed once it was let go."""

from copy import deepcopy
from typing import Any, Final

import pytest

from services.classifier.refusal import RefusedError
from services.classifier.webhook.context import NamespaceContext
from services.classifier.webhook.updates import review_update
from shared.contracts.kube.kinds import Object
from shared.contracts.webhook import PATCHER_USER
from shared.integrations import Integrations, opted_documents
from tests.unit.integrations.grouped_pods import PODS, PREFIX, pod

TOTAL: Final = f"{PREFIX}pod-group-total-count"
ROLE: Final = f"{PREFIX}role-hash"
EARLY: Final = f"{PREFIX}pod-group-fast-admission"
SERVING: Final = f"{PREFIX}pod-group-serving"
FINAL: Final = f"{PREFIX}retriable-in-group"


def in_force() -> NamespaceContext:
    known = Integrations()
    for document in opted_documents(("pod",)):
        known.apply(document)
    patchers = frozenset({PATCHER_USER})
    return NamespaceContext(integrations=known, patchers=patchers, knows_decisions=True)


CONTEXT = in_force()


def changed(old: Object, key: str, value: str | None, *, user: str = "jane") -> None:
    """Let a user write an annotation; raises `RefusedError`. None takes it away."""
    new = deepcopy(old)
    new["metadata"]["annotations"].pop(key, None)
    if value is not None:
        new["metadata"]["annotations"][key] = value
    review_update(new, old, PODS, user=user, context=CONTEXT)


def alone(**marks: Any) -> Object:
    """A pod of no group."""
    made = pod("x", "Running", **marks)
    del made["metadata"]["labels"][f"{PREFIX}pod-group-name"]
    del made["metadata"]["annotations"][TOTAL]
    return made


REFUSED: dict[str, tuple[Object, str, str | None]] = {
    "fewer pods": (pod("x", "Running"), TOTAL, "1"),
    "no role": (pod("x", "Running"), ROLE, None),
    "fewer pods, when it has succeeded": (pod("x", "Succeeded"), TOTAL, "1"),
    "fewer pods, before it has a node": (pod("x", gated=False), TOTAL, "1"),
    "another role": (pod("x", "Running"), ROLE, "b"),
    "that it waits with its first pod": (pod("x", "Running"), EARLY, "true"),
    "that it serves": (pod("x", "Running"), SERVING, "true"),
    "that it serves no more": (pod("x", "Running", pod_group_serving="true"), SERVING, None),
    "that it is retriable after all": (
        pod("x", "Running", retriable_in_group="false"),
        FINAL,
        "true",
    ),
    "that it is retriable after all, while it waits": (
        pod("x", retriable_in_group="false"),
        FINAL,
        None,
    ),
}


@pytest.mark.parametrize(("old", "key", "value"), REFUSED.values(), ids=REFUSED)
def test_pod_that_counts_in_its_group_may_not_change_its_annotations(
    old: Object, key: str, value: str | None
) -> None:
    before = old["metadata"]["annotations"].get(key, "")
    with pytest.raises(RefusedError, match="its group is counted by it") as refused:
        changed(old, key, value)
    assert f"metadata.annotations[{key}]: must stay {before!r}" in str(refused.value)
    changed(old, key, value, user=PATCHER_USER)


ALLOWED: dict[str, tuple[Object, str, str | None]] = {
    "another number of pods while it waits": (pod("x"), TOTAL, "4"),
    "another role while it waits": (pod("x"), ROLE, "b"),
    "that its group ends with its last pod": (pod("x", "Running"), FINAL, "false"),
    "something of its own": (pod("x", "Running"), "example.com/step", "2"),
    "anything, of no group": (alone(), ROLE, "b"),
    "that it may be retried, of no group": (alone(retriable_in_group="false"), FINAL, None),
}


@pytest.mark.parametrize(("old", "key", "value"), ALLOWED.values(), ids=ALLOWED)
def test_pod_may_say(old: Object, key: str, value: str | None) -> None:
    changed(old, key, value)
