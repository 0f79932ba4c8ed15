"""Forecasts and explanations, compared with what becomes of a world."""
