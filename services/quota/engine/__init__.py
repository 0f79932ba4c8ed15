"""The quota policy, pure: facts go in, decisions come out. Standard library only."""

from services.quota.engine.engine import Policy, QuotaEngine

__all__ = ["Policy", "QuotaEngine"]
