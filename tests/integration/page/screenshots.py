"""`make screenshots`: pictures of the console's pages for README and docs, always of the same work.

The console is a real one and quota decides; only the messages about the cluster are made up.
"""

import asyncio
import base64
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from shared.contracts.kube import kinds
from shared.contracts.messages.workloads import PodSet
from shared.testing.builders import job_owner
from tests.integration.browser import CHROMIUM, Page, browser
from tests.integration.console_stage import Place, console
from tests.integration.explain_stage import Site

FOLDER: Final = Path("docs/images")
BYTES_MAX: Final = 200_000

Json = dict[str, Any]

WIDE: Final = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
PHONE: Final = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
PICTURES: Final[list[tuple[str, str, str, Json]]] = [
    ("overview", "/", "light", WIDE),
    ("overview-dark", "/", "dark", WIDE),
    ("overview-phone", "/", "light", PHONE),
    ("workloads", "/workloads?status=PENDING", "light", WIDE),
    ("workload", "/workloads/hub/vision/job-train-7", "light", WIDE),
    ("queue", "/clusterqueues/hub/vision-training", "light", WIDE),
    ("cohort", "/cohorts/hub/delivery", "light", WIDE),
    ("namespace", "/namespaces/language", "light", WIDE),
    ("history", "/history?span=24h", "light", WIDE),
    (
        "what-if",
        "/what-if?queue=hub%2F%2Fvision-training&place=a100%2Fnvidia.com%2Fgpu&amount=40",
        "light",
        WIDE,
    ),
]
"""Name of the picture, address, colour scheme and size."""

QUEUES: Final = {
    "vision-training": ("research", {"a100": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "16"}}),
    "vision-batch": ("research", {"spot": {"cpu": "96", "memory": "384Gi"}}),
    "language-training": ("research", {"a100": {"cpu": "96", "memory": "768Gi", "nvidia.com/gpu": "24"}}),
    "builds": ("delivery", {"default": {"cpu": "48", "memory": "192Gi"}}),
    "nightly": ("delivery", {"default": {"cpu": "16", "memory": "64Gi"}}),
    "sandbox": (None, {"default": {"cpu": "8", "memory": "32Gi"}}),
}  # fmt: skip
"""ClusterQueue to its cohort and its quotas by flavor."""

TENANTS: Final = {
    "vision": {"training": "vision-training", "batch": "vision-batch"},
    "language": {"training": "language-training"},
    "delivery": {"builds": "builds", "nightly": "nightly"},
    "playground": {"sandbox": "sandbox"},
}
"""Namespace to its LocalQueues, and the ClusterQueue of each."""

ASKS: Final[dict[str, list[Json]]] = {
    "training": [
        {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"},
        {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": "8"},
    ],
    "batch": [{"cpu": "12", "memory": "48Gi"}],
    "builds": [{"cpu": "4", "memory": "8Gi"}, {"cpu": "8", "memory": "16Gi"}],
    "nightly": [{"cpu": "8", "memory": "24Gi"}],
}
COUNTS: Final = {"training": 9, "batch": 11, "builds": 12, "nightly": 1}
ENDED: Final = 90
"""Jobs of the last day that have ended, for the history."""

SETTLE_SECONDS: Final = 0.03
"""How long quota has for one of them."""

NAMES: Final = {"training": "train", "batch": "render", "builds": "build", "nightly": "e2e"}


async def main() -> int:
    """Take every picture; return 1 if there is no browser."""
    if CHROMIUM is None:
        sys.stderr.write("there is no Chromium: `make browser` says how to get one\n")
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    async with console(people=False) as place:
        await furnish(place.site)
        with TemporaryDirectory() as folder:
            async with browser(Path(folder)) as page:
                for name, path, scheme, size in PICTURES:
                    await shoot(page, place, FOLDER / f"console-{name}.png", path, scheme, size)
                assert page.complaints == []
    return 0


async def shoot(page: Page, place: Place, file: Path, path: str, scheme: str, size: Json) -> None:
    """One picture, once the page has settled."""
    await page.call("Emulation.setDeviceMetricsOverride", **size)
    wanted = {"name": "prefers-color-scheme", "value": scheme}
    await page.call("Emulation.setEmulatedMedia", features=[wanted])
    await page.open(place.url + path)
    await page.until("document.getElementById('connection').dataset.state === 'live'")
    await page.until("!document.body.innerText.match(/reading…|asking…|worked out…/)")
    if path.startswith("/what-if"):
        await page.value("document.querySelector('#what-if button').click()")
        await page.until("document.querySelector('#what-if-answer table') !== null")
    picture = await page.call("Page.captureScreenshot", format="png")
    data = base64.b64decode(picture["data"])
    assert len(data) <= BYTES_MAX, f"{file}: {len(data)} bytes are more than {BYTES_MAX}"
    await asyncio.to_thread(file.write_bytes, data)
    sys.stdout.write(f"{file}: {len(data) // 1000} kB\n")


async def furnish(site: Site) -> None:
    """Queues of three teams and their work; quota decides what of it runs."""
    for flavor in ("a100", "spot", "default"):
        await site.observe(kinds.RESOURCE_FLAVOR, flavor, {"nodeLabels": {"pool": flavor}})
    for name, (cohort, quotas) in QUEUES.items():
        await site.observe(kinds.CLUSTER_QUEUE, name, queue_spec(cohort, quotas))
    random, now = Random(7), datetime.now(UTC)
    for namespace, queues in TENANTS.items():
        await site.observe(kinds.NAMESPACE, namespace, {})
        for name, to in queues.items():
            await site.local(name, to, namespace)
    await site.synced()
    await a_day(site, random, now)
    work = [
        (now - timedelta(minutes=180 - 14 * number + random.randrange(9)), namespace, queue, number)
        for namespace, queues in TENANTS.items()
        for queue in queues
        for number in range(1, COUNTS.get(queue, 0) + 1)
    ]
    for at, namespace, queue, number in sorted(work):
        await submit(site, namespace, queue, number, at, random)
    odd = {
        "inadmissible": "label kueue.x-k8s.io/priority-class: there is no WorkloadPriorityClass urgnt"
    }
    await submit(site, "delivery", "builds", 41, now - timedelta(minutes=26), random, **odd)


async def a_day(site: Site, random: Random, now: datetime) -> None:
    """Jobs that came and ended in the last day, most of them around noon; quota decided when they came."""
    steps: list[tuple[datetime, bool, tuple[str, str, int, datetime]]] = []
    for number in range(200, 200 + ENDED):
        queues = (("vision", "training"), ("vision", "batch"), ("delivery", "builds"))
        came = now - timedelta(minutes=random.triangular(4 * 60, 23 * 60, 9 * 60))
        job = (*random.choice(queues), number, came)
        steps.append((came, False, job))
        steps.append((came + timedelta(minutes=random.uniform(20, 150)), True, job))
    for at, has_ended, (namespace, queue, number, came) in sorted(steps):
        await asyncio.sleep(SETTLE_SECONDS)
        site.behind = datetime.now(UTC) - at
        finish = {"success": True, "message": "Job finished successfully", "at": at}
        end = {"phase": "finished", "finish": finish, "admitted_at": came} if has_ended else {}
        await submit(site, namespace, queue, number, came, Random(number), **end)
    await asyncio.sleep(SETTLE_SECONDS)
    site.behind = timedelta(0)


async def submit(
    site: Site, namespace: str, queue: str, number: int, at: datetime, random: Random, **more: Any
) -> None:
    """One job of a tenant; every third has a higher priority."""
    name = f"{NAMES[queue]}-{number}"
    pods = [PodSet(name="main", count=1, requests=random.choice(ASKS[queue]))]
    await site.workload(
        f"job-{name}",
        **{
            "namespace": namespace, "queue": queue, "created_at": at, "pod_sets": pods,
            "owner": job_owner(name), "priority": 100 if number % 3 == 0 else 0,
            "uid": f"{namespace}-{name}", **more,
        },
    )  # fmt: skip


def queue_spec(cohort: str | None, quotas: dict[str, dict[str, str]]) -> Json:
    """A ClusterQueue for every namespace, with these quotas by flavor."""
    groups = [
        {
            "coveredResources": list(amounts),
            "flavors": [{"name": flavor, "resources": quota(amounts.items())}],
        }
        for flavor, amounts in quotas.items()
    ]
    return {
        "namespaceSelector": {},
        "resourceGroups": groups,
        **({"cohortName": cohort} if cohort else {}),
    }


def quota(amounts: Iterable[tuple[str, str]]) -> list[Json]:
    """The quotas of one flavor."""
    return [{"name": name, "nominalQuota": nominal} for name, nominal in amounts]


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
