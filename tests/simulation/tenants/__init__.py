"""Worlds of tenants who try to run without quota, and of input that nobody should send."""
