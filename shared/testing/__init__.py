"""Fakes of the shared ports, and the deterministic world they live in."""
