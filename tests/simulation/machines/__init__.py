"""Worlds of machines: parks, slots, and checks that order them."""
