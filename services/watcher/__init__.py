"""Publishes what one cluster's API server lists and watches."""
