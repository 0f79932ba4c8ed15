"""A message that a command has read from a stream: typed, or left out with the reason."""

from datetime import UTC, datetime
from typing import Any

from shared.bus.stream_reader import Seen
from shared.contracts.messages.queues import CohortShare

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def seen(body: dict[str, Any]) -> Seen:
    return Seen(subject="sluice.cohort.hub._.c", body=body, headers={}, sequence=1, time=NOON)


def test_body_of_the_type_is_a_message() -> None:
    share = CohortShare(cluster="hub", name="c", at=NOON)

    assert seen(share.model_dump(mode="json")).read(CohortShare) == share


def test_body_that_cannot_be_read_is_left_out_with_the_reason() -> None:
    left_out: list[tuple[Seen, str]] = []
    broken = seen({})

    assert broken.read(CohortShare, lambda one, error: left_out.append((one, str(error)))) is None
    assert [one for one, _ in left_out] == [broken]
    assert "CohortShare" in left_out[0][1]
    assert broken.read(CohortShare) is None, "without anybody to tell"
