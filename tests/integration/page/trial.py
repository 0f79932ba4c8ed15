"""`make trial`: every page of a console with 600 workloads in a real browser, with figures for each.

The console and quota are real; only the messages about the cluster are made up. It prints how much of each
page moved, what the browser complained about, what axe-core found, and how long the page took until it
showed what it is for; it ends with status 1 if one of that is more than a goal of the project allows. The
seconds are those of an idle machine with two cores: where it is busy, `PAGE_SECONDS=5` allows more.
"""

import asyncio
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from tests.integration.browser import CHROMIUM, Page, browser
from tests.integration.console_stage import Place, console, furnish_places
from tests.integration.page.reading import AXE, LIVE, SHIFTS, SHOWN, VIOLATIONS, WHOLE
from tests.integration.page.screenshots import TENANTS, furnish, submit

WORKLOADS: Final = 600
SHIFT_MAX: Final = 0.1
SECONDS_MAX: Final = float(os.environ.get("PAGE_SECONDS") or 1)
PAGES: Final = (
    "/",
    "/workloads",
    "/workloads/hub/vision/job-train-7",
    "/clusterqueues/hub/vision-training",
    "/localqueues/hub/vision/training",
    "/cohorts/hub/research",
    "/flavors/hub/a100",
    "/spokes",
    "/spokes/hub/east",
    "/machines",
    "/machines/hub/linux%2Farm64",
    "/namespaces",
    "/namespaces/vision",
    "/history?span=24h",
    "/what-if",
)


async def main() -> int:
    """Walk all pages; return 1 if one of them misses a goal, or if there is no browser."""
    if CHROMIUM is None:
        sys.stderr.write("there is no Chromium: `make browser` says how to get one\n")
        return 1
    async with console(people=False) as place:
        await furnish(place.site)
        await furnish_places(place.site)
        await more_work(place)
        await place.until("/api/v1/workloads", 200, lambda body: len(body["items"]) >= WORKLOADS)
        with TemporaryDirectory() as folder:
            async with browser(Path(folder)) as page:
                await visit(page, place, "/")  # The browser compiles scripts once.
                met = [await visit(page, place, path) for path in PAGES]
    sys.stdout.write(f"trial: {sum(met)} of {len(met)} pages meet the goals\n")
    return 0 if all(met) else 1


async def more_work(place: Place) -> None:
    """Jobs of all tenants until there are enough."""
    random, now = Random(11), datetime.now(UTC)
    queues = [(tenant, queue) for tenant, found in TENANTS.items() for queue in found]
    for number in range(100, 100 + WORKLOADS):
        namespace, queue = queues[number % (len(queues) - 1)]
        at = now - timedelta(seconds=random.randrange(90 * 60))
        await submit(place.site, namespace, queue, number, at, random)


async def visit(page: Page, place: Place, path: str) -> bool:
    """Open one page by its address, as somebody does who has a link; print what was measured."""
    page.forget()
    began = time.monotonic()
    await page.open(place.url + path)
    await page.until(f"location.pathname + location.search === {path!r} && {LIVE} && {SHOWN}")
    seconds = time.monotonic() - began
    await page.until(WHOLE)  # A forecast has two seconds of its own.
    moved = await page.value(SHIFTS)
    violations: list[str] = []
    if AXE.exists():
        await page.value(AXE.read_text())
        violations = await page.value(VIOLATIONS)
    wrong = [*page.complaints, *violations]
    sys.stdout.write(
        f"{path:40} {seconds:6.2f} s   shift {moved:.3f}   {wrong or 'no complaints'}\n"
    )
    return seconds <= SECONDS_MAX and moved <= SHIFT_MAX and not wrong


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
