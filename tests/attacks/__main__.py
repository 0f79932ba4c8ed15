"""``python -m tests.attacks [words]``: one line for each attack whose name holds the words; `make attack`."""

import asyncio
import logging
import sys

import structlog

from tests.attacks.attack import attempt
from tests.attacks.place import Place
from tests.attacks.table import attacks

THREATS = {
    "T1": "T1, a tenant with the role edit in one namespace",
    "T2": "T2, a spoke in somebody else's hands",
    "T3": "T3, a service or a user of the hub in somebody else's hands",
    "T4": "T4, whoever reaches the ports without credentials",
}


async def _main(words: str) -> int:
    """Run the chosen attacks; the exit code."""
    chosen = [attack for attack in attacks() if words in str(attack)]
    held, threat, place = 0, "", Place()
    try:
        for attack in chosen:
            if attack.threat != threat:
                threat = attack.threat
                _say(THREATS[threat])
            got = await attempt(attack, place)
            held += got is None
            _say(f"  held    {attack.way}" if got is None else f"  BROKEN  {attack.way}: {got}")
    finally:
        await place.leave()
    _say(f"attacks: {held} of {len(chosen)} held")
    return 0 if held == len(chosen) else 1


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable()
    sys.exit(asyncio.run(_main(" ".join(sys.argv[1:]))))
