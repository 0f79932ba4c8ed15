"""Requests that the quota service answers: subjects and limits.

The models of requests and answers are in `shared.contracts.messages.explain`. This module imports no
pydantic, because `sluice get` and `sluice explain` have to start quickly.
"""

from typing import Final

from shared.contracts.subjects import rpc_subject

EXPLAIN: Final = rpc_subject("quota", "explain")
"""Why does a workload wait?"""

POSITIONS: Final = rpc_subject("quota", "positions")
"""Which workloads wait, and in which order?"""

POSITIONS_MAX: Final = 4000
"""Positions in one answer. At 200 bytes each they stay below the server's message limit."""
