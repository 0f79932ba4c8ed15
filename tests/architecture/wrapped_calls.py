"""Breaches that a formatter wraps over lines, for rules that must find them all the same."""

from collections.abc import Sequence
from typing import Final

from tests.architecture.sources import Source

WRAPPED: Final[dict[str, tuple[str, Sequence[Source], str]]] = {
    "a service derives one message from another, over lines": (
        "contracts_are_built_complete",
        [Source("services/quota/a.py", "x = y.model_copy(\n    deep=True,\n    update={},\n)")],
        "services/quota/a.py:1: model_copy",
    ),
    "a service handles a body that cannot be read, over lines": (
        "the_bus_handles_bodies_that_cannot_be_read",
        [
            Source(
                "services/quota/a.py",
                "try: ...\nexcept (\n    ValueError,\n    UndecodableError,\n): ...",
            )
        ],
        "services/quota/a.py:2: except UndecodableError",
    ),
    "a service asks for a lease, over lines": (
        "the_bus_keeps_leases",
        [Source("services/quota/a.py", "lease = await (\n    self._bus\n    .lease(name)\n)")],
        "services/quota/a.py:2: bus.lease",
    ),
    "a service imports the root of subjects among others, over lines": (
        "labels_and_subjects_live_in_contracts",
        [
            Source(
                "services/quota/a.py",
                "from shared.contracts.subjects import (\n    ADMISSIONS, ROOT,\n)",
            )
        ],
        "services/quota/a.py:1: a subject is put together",
    ),
    "a service puts a subject together, over lines": (
        "labels_and_subjects_live_in_contracts",
        [Source("services/quota/a.py", "x = (\n    subjects\n    .ROOT\n)")],
        "services/quota/a.py:2: a subject is put together",
    ),
}
"""By case the rule, the files and the beginning of what the rule says."""
