"""The configuration document."""
