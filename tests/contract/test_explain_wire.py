"""The JSON of questions and answers is a promise too, though no stream keeps it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from shared.contracts.messages.base import Part
from shared.contracts.messages.explain import (
    ExplainAnswer,
    ExplainRequest,
    Explanation,
    Holder,
    Position,
    PositionsAnswer,
    PositionsRequest,
    Shortage,
)

WIRE = Path(__file__).parent / "wire"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

EXAMPLES: dict[str, Part] = {
    "explain-request": ExplainRequest(namespace="team-a", name="train"),
    "explain-answer": ExplainAnswer(
        items=[
            Explanation(
                cluster="hub", namespace="team-a", name="job-train-3f2a1", job="Job train",
                reason="WaitingForQuota", message="insufficient unused quota for cpu",
                queue="main", cluster_queue="team", priority=100, created_at=NOON,
                position=3, position_in_local_queue=2, ahead=["job-a-1"], ahead_here=1,
                ahead_elsewhere=1, victims=["job-b-1"], victims_elsewhere=2,
                shortages=[
                    Shortage(
                        flavor="spot", resource="cpu", asked="4", free="1", borrowable="500m",
                        most="12", holders=[Holder(name="job-c-1", amount="3")],
                        holders_elsewhere=2, held_elsewhere="8",
                    )
                ],
                checks={"machines": "Pending"}, requeue_at=NOON,
                remedy="3 more cpu in flavor spot must become free",
                expected_start_unknown_because="nobody kept how long others ran",
            )
        ]
    ),
    "positions-request": PositionsRequest(cluster_queue="team", limit=2),
    "positions-answer": PositionsAnswer(
        items=[
            Position(
                cluster="hub", namespace="team-a", name="job-train-3f2a1", queue="main",
                cluster_queue="team", priority=100, position=3, position_in_local_queue=2,
            )
        ]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_explanation_on_the_wire_equals_the_recorded_one(name: str, update_golden: bool) -> None:
    example, file = EXAMPLES[name], WIRE / f"{name}.json"
    text = example.model_dump_json(exclude_none=True, indent=2) + "\n"
    if update_golden:
        file.write_text(text)
    assert file.read_text() == text, "meant? then: pytest --update-golden, and review the diff"
    assert type(example).model_validate_json(text) == example
