"""Whom quota's log lines are about: each carries the workload, and the number of its trace."""

from typing import Any, Final

import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from services.quota.trust.refusals import OutcomeRule, refuse
from shared.contracts.messages.base import Message
from shared.contracts.messages.observed import Synced
from tests.unit.quota.service_setup import NOON
from tests.unit.quota.test_trust import report

TRACE: Final = "ab" * 16
TRACEPARENT: Final = f"00-{TRACE}-{'cd' * 8}-01"
OF: Final[dict[str, tuple[Message, dict[str, Any]]]] = {
    "an outcome with a trace": (
        report(name="traced", traceparent=TRACEPARENT),
        {"workload": "team/traced", "trace": TRACE},
    ),
    "an outcome without a trace": (
        report(name="untraced"),
        {"workload": "team/untraced", "trace": None},
    ),
    "an outcome with a context that is none": (
        report(name="mistraced", traceparent="00-1-2-01"),
        {"workload": "team/mistraced", "trace": None},
    ),
    "a message about no workload": (
        Synced(cluster="of-log-lines", epoch="1", kinds=[], at=NOON),
        {"workload": None, "trace": None},
    ),
}


@pytest.mark.parametrize(("message", "carried"), OF.values(), ids=OF)
def test_line_about_a_refused_message_carries_the_workload_and_its_trace(
    message: Message, carried: dict[str, Any]
) -> None:
    with capture_logs([merge_contextvars]) as lines:
        refuse(message, OutcomeRule.NO_DECISION, action="release", result="refused")

    [line] = lines
    assert {name: line.get(name) for name in carried} == carried
