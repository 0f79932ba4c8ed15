"""Objects that cannot be used in their present form: the last valid one stays in force."""

import structlog

from services.quota.engine.facts import Fact
from services.quota.wire.inbound import TranslateError, observed_facts
from shared.contracts.messages.observed import Observed
from shared.contracts.refs import ObjectRef

log = structlog.get_logger(__name__)


class IgnoredObjects:
    """Which objects are ignored at present."""

    def __init__(self) -> None:
        self._why: dict[ObjectRef, str] = {}

    @property
    def problems(self) -> list[str]:
        """Object, field and value of each."""
        return sorted(self._why.values())

    def facts(self, observed: Observed) -> list[Fact] | None:
        """The facts in one observation; None if its object is ignored."""
        try:
            facts = observed_facts(observed)
        except TranslateError as error:
            self._why[observed.ref] = str(error)
            log.warning("an object that cannot be used is ignored", error=str(error))
            return None
        self._why.pop(observed.ref, None)
        return facts
