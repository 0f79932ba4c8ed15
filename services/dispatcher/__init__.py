"""Sends admitted work to spoke clusters."""
