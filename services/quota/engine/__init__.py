"""The quota policy. Pure: standard library only, no clock, no I/O.

Facts about queues and workloads go in (`facts`), `QuotaEngine` keeps the state of every cluster and
runs scheduling cycles, and decisions come out (`decisions`). The same facts in the same order give
the same decisions. Imports go one way: `views` and `scheduling` use `preemption`, which uses `model`.
"""

from services.quota.engine.engine import QuotaEngine
from services.quota.engine.policy import Policy

__all__ = ["Policy", "QuotaEngine"]
