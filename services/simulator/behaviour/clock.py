"""Simulated time: durations are divided by a factor; timestamps are real."""

import asyncio
import re
from collections.abc import Callable
from typing import Final

_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class Clock:
    """Schedules callbacks after simulated durations, on the running event loop."""

    def __init__(self, speed: float) -> None:
        """`speed` 60 makes a simulated minute last a second. It must be positive."""
        if speed <= 0:
            raise ValueError(f"speed must be positive, not {speed}")
        self._speed = speed

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call after `seconds` of simulated time."""
        return asyncio.get_running_loop().call_later(seconds / self._speed, callback)

    def time(self) -> float:
        """Simulated seconds since some fixed moment."""
        return asyncio.get_running_loop().time() * self._speed


def parse_duration(text: str) -> float | None:
    """Read ``1h30m``, ``90s``, ``500ms`` or plain seconds; ``None`` for anything else."""
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not text or not re.fullmatch(r"(\d+(\.\d+)?(ms|h|m|s))+", text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def format_duration(seconds: float) -> str:
    """Write a duration as Go does: ``1h0m0s``."""
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
