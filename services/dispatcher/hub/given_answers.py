"""Which answers of admission checks are on the bus, for as long as their workloads need them.

The dispatcher answers MultiKueue and window checks, and deletes these answers from the view once the workload
holds no quota and has no order. Those of other services it only reads: then it forgets them.
"""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from services.dispatcher.hub.configuration import MultiKueueConfiguration
from shared.contracts.controllers import ANSWERED_BY, MULTIKUEUE
from shared.contracts.messages.checks import CheckState
from shared.contracts.refs import WorkloadRef


class GivenAnswer(NamedTuple):
    """The last answer of one service to one check of a workload."""

    workload: WorkloadRef
    check: str
    service: str
    """Empty: an earlier release gave it."""

    at: datetime
    sequence: int


class GivenAnswers:
    """The answers about the workloads of the hub that were read in one term."""

    def __init__(self, configuration: MultiKueueConfiguration) -> None:
        self._configuration = configuration
        self._last: dict[str, GivenAnswer] = {}
        """By subject."""

    def __bool__(self) -> bool:
        return bool(self._last)

    def observe(self, check: CheckState, sequence: int) -> None:
        """Record an answer that was read."""
        self._last[check.subject] = GivenAnswer(
            check.ref, check.check, check.service, check.at, sequence
        )

    def expired(
        self, before: datetime, is_live: Callable[[WorkloadRef], bool]
    ) -> dict[str, GivenAnswer]:
        """The answers, by subject, that were given before that time, and whose workloads live no more."""
        return {
            subject: one
            for subject, one in self._last.items()
            if one.at < before and not is_live(one.workload)
        }

    def is_own(self, answer: GivenAnswer) -> bool:
        """Whether the dispatcher gave the answer."""
        service = answer.service
        if not service:
            controller = self._configuration.controller_of(answer.check)
            service = ANSWERED_BY.get(controller, "")
        return service == ANSWERED_BY[MULTIKUEUE]

    def forget(self, subject: str, answer: GivenAnswer) -> None:
        """Forget an answer, unless there is a newer one."""
        if self._last.get(subject) == answer:
            del self._last[subject]
