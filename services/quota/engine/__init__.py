"""The quota policy, pure: facts go in, decisions come out. Standard library only."""

from services.quota.engine.engine import QuotaEngine
from services.quota.engine.policy import Policy

__all__ = ["Policy", "QuotaEngine"]
