"""Parts of messages are immutable values that share what is the same for all of their type."""

import copy

import pytest
from pydantic import ValidationError

from shared.contracts.messages.base import Part
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.builders import job_owner, workload


def parts_of(state: WorkloadState) -> list[Part]:
    assert state.owner is not None
    return [state, state.owner, *state.pod_sets]


@pytest.mark.parametrize("way", ["made", "read", "replaced", "copied", "copied deeply"])
def test_parts_of_a_type_share_the_names_of_their_fields(way: str) -> None:
    first = workload("a", owner=job_owner("a"))
    other = {
        "made": lambda: workload("b", owner=job_owner("b")),
        "read": lambda: WorkloadState.decode(first.encode(), {"traceparent": "00-t-s-01"}),
        "replaced": lambda: first.replace(name="b"),
        "copied": lambda: copy.copy(first),
        "copied deeply": lambda: copy.deepcopy(first),
    }[way]()
    for one, another in zip(parts_of(first), parts_of(other), strict=True):
        assert one.model_fields_set == set(type(one).model_fields)
        if way != "copied deeply":
            assert one.model_fields_set is another.model_fields_set


def test_copy_with_changes_leaves_the_first_as_it_was() -> None:
    first = workload("a", owner=job_owner("a"))
    changed = first.replace(priority=7)
    assert (first.priority, changed.priority) == (0, 7)
    assert changed.same_except(first, "priority")
    assert changed != first
    assert copy.copy(first) == first


def test_part_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        workload("a").priority = 7  # type: ignore[misc]


def test_trace_of_the_headers_is_read_and_not_written() -> None:
    first = WorkloadState.decode(workload("a").encode(), {"traceparent": "00-t-s-01"})
    assert first.traceparent == "00-t-s-01"
    assert b"traceparent" not in first.encode()
