"""The quota policy, pure: facts go in, decisions come out. Standard library only."""
