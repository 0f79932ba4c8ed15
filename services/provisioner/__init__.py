"""Finds and starts the machines that admitted work needs."""
