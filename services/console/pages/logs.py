"""Finds places in a log by time, with a number of questions that grows with the logarithm of its length."""

from datetime import datetime

from shared.bus.port import Bus, Entry


async def first_since(bus: Bus, name: str, begin: datetime) -> int:
    """The first sequence of a log that is not older than `begin`."""
    low, high = 1, await bus.last_sequence(name) + 1
    while low < high:
        middle = (low + high) // 2
        entry = await bus.at_or_after(name, middle)
        if entry is None or entry.time >= begin:
            high = middle
        else:
            low = max(entry.sequence, middle) + 1
    return low


async def last_before(bus: Bus, name: str, subject: str, sequence: int) -> Entry | None:
    """The last entry of a subject before a sequence of the log; None: the log holds none."""
    found: Entry | None = None
    low, high = 1, sequence
    while low < high:
        # At first the whole range: most subjects have nothing there, or one entry.
        middle = low if found is None else (low + high) // 2
        entry = await bus.at_or_after(name, middle, subject=subject)
        if entry is not None and entry.sequence < sequence:
            found, low = entry, entry.sequence + 1
        elif found is None:
            return None
        else:
            high = middle
    return found
