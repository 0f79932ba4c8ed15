"""Patches of finalizers: what they change, and when they do not apply."""

from typing import Any

import jsonpatch
import pytest

from services.patcher.cluster.patches import add_finalizer, remove_finalizer
from shared.contracts.kube.bodies import Body, as_body

OURS = "kueue.x-k8s.io/resource-in-use"
LATER = "2026-01-01T12:00:00Z"


def obj(*finalizers: str, **metadata: Any) -> Body:
    own = {"name": "f", "uid": "u", "resourceVersion": "7"}
    return as_body({"metadata": {**own, "finalizers": [*finalizers], **metadata}})


def finalizers(of: Body, patch: Any) -> list[str]:
    after: list[str] = jsonpatch.apply_patch(dict(of), patch)["metadata"]["finalizers"]
    return after


def test_finalizer_is_added_beside_others_once_and_to_what_stays() -> None:
    assert finalizers(obj("other"), add_finalizer(obj("other"), OURS)) == ["other", OURS]
    assert add_finalizer(obj("other", OURS), OURS) is None
    assert add_finalizer(obj("other", deletionTimestamp=LATER), OURS) is None


def test_finalizer_is_removed_and_others_stay() -> None:
    of = obj("first", OURS, "last", deletionTimestamp=LATER)
    assert finalizers(of, remove_finalizer(of, OURS)) == ["first", "last"]
    assert remove_finalizer(obj("first"), OURS) is None


CHANGED = {
    "another object of the name": obj(OURS, uid="another"),
    "another finalizer since": obj(OURS, "new"),
}


@pytest.mark.parametrize("now", CHANGED.values(), ids=CHANGED.keys())
def test_finalizer_of_what_changed_meanwhile_stays(now: Body) -> None:
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        finalizers(now, remove_finalizer(obj(OURS), OURS))


@pytest.mark.parametrize("changed", [{"uid": "another"}, {"resourceVersion": "8"}])
def test_finalizer_is_added_only_to_what_was_read(changed: dict[str, str]) -> None:
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        finalizers(obj(**changed), add_finalizer(obj(), OURS))
