"""What tenants and administrators do wrong, done to a running system: real services, a real NATS.

Faults F19, F20, F22, F23 and F24 of `docs/explanation/faults.md`.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml

from services.ctl.dev.app import DevOptions, Running, running
from shared.contracts.kube import kinds
from shared.contracts.kube.conditions import find_condition, is_true
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import workload_name
from shared.contracts.kube.quantities import parse_quantity
from shared.kube.port import NotFoundError, RefusedError
from shared.testing.waiting import eventually
from tests.conformance.seeds.stage import job, pool
from tests.e2e.test_kills import kill
from tests.e2e.test_life_kills import decisions
from tests.simulation.tenants.hostile_input import workload

pytestmark = pytest.mark.asyncio(loop_scope="module")

TENANT, FLOODER = "team-a", "team-b"
FLOOD: Final = 200
"""Jobs of the tenant that floods the system."""

FOREVER: Final = 900_000.0
"""Simulated seconds: longer than any test."""

REFUSED: Final = (
    *("9223372036854775808", "12E", "1e999999999", "NaN", "Infinity", "1_000", "\uff11\uff12"),
)
"""Amounts of cpu that are refused; those above an int64 by the simulator only."""

NEVER: Final = ("-1", "9223372036854775807", "7E")
"""Amounts with which a job waits for ever: an API server refuses the negative one, the simulator does not."""

LITTLE: Final = ("0", "0.1m")

LOOK_SECONDS: Final = 0.1


class Cluster:
    """The cluster of a running system, as its users have it."""

    def __init__(self, system: Running) -> None:
        self.system = system
        self.kube = system.kube()

    async def create(self, *objects: Object) -> Object:
        """Create objects; return the last."""
        made: Object = {}
        for obj in objects:
            made = await self.kube.create(_kind(obj), obj)
        return made

    async def patch(self, obj: Object, patch: Any, *, subresource: str | None = None) -> None:
        await self.kube.patch(_kind(obj), *_key(obj), patch, subresource=subresource)

    async def delete(self, obj: Object) -> None:
        await self.kube.delete(_kind(obj), *_key(obj))

    async def set_quota(self, queue: Object, cpus: int) -> None:
        path = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"
        await self.patch(queue, [{"op": "replace", "path": path, "value": str(cpus)}])

    async def fresh(self, obj: Object) -> Object:
        """The object as it is now; empty if it is gone."""
        try:
            return await self.kube.get(_kind(obj), *_key(obj))
        except NotFoundError:
            return {}

    async def workload(self, obj: Object) -> Object:
        """The Workload of a job, or a Workload itself; empty if there is none."""
        if obj["kind"] == kinds.WORKLOAD.kind:
            return await self.fresh(obj)
        metadata = obj["metadata"]
        group = str(obj["apiVersion"]).rpartition("/")[0]
        name = workload_name(
            kind=obj["kind"], group=group, name=metadata["name"], uid=metadata["uid"]
        )
        try:
            return await self.kube.get(kinds.WORKLOAD, metadata["namespace"], name)
        except NotFoundError:
            return {}

    async def until(self, obj: Object, type_: str, text: str = "", *, is_so: bool = True) -> None:
        """Wait until a condition of the Workload behind `obj` is so, and says `text`."""
        found: Object = {}

        async def holds() -> bool:
            nonlocal found
            found = find_condition(await self.workload(obj), type_) or {}
            told = f"{found.get('reason')}: {found.get('message')}"
            return found.get("status") == str(is_so) and text in told

        await eventually(holds, lambda: f"{_key(obj)}: {found}", look_seconds=LOOK_SECONDS)

    async def until_used(self, queue: Object, cpus: int | str) -> None:
        """Wait until a ClusterQueue says that so much is reserved in it."""
        found: Object = {}

        async def holds() -> bool:
            nonlocal found
            found = (await self.fresh(queue)).get("status") or {}
            return _reserved(found) == parse_quantity(str(cpus))

        await eventually(holds, lambda: f"{_key(queue)}: {found}", look_seconds=LOOK_SECONDS)

    async def is_admitted(self, obj: Object) -> bool:
        return is_true(await self.workload(obj), "Admitted")

    async def queue(self, name: str, cpus: int, **spec: Any) -> Object:
        """A ClusterQueue of so many CPUs with its LocalQueues. Returns the ClusterQueue."""
        _, queue, *local_queues = pool(
            name, {"cpu": cpus}, namespaces=(TENANT, FLOODER), flavor="cpus", **spec
        )
        made = await self.create(queue)
        await self.create(*local_queues)
        return made

    async def job(
        self, name: str, queue: str, cpus: object = 1, *, seconds: float = FOREVER, **more: Any
    ) -> Object:
        """Create a job of one pod."""
        return await self.create(job(name, queue, {"cpu": cpus}, seconds=seconds, **more))


def _kind(obj: Object) -> Kind:
    return next(
        one for one in vars(kinds).values() if isinstance(one, Kind) and one.kind == obj["kind"]
    )


def _key(obj: Object) -> tuple[str | None, str]:
    return obj["metadata"].get("namespace"), obj["metadata"]["name"]


def _reserved(status: Object) -> int:
    """The cpu that a ClusterQueue says is reserved, in billionths."""
    return sum(
        parse_quantity(resource["total"])
        for flavor in status.get("flavorsReservation") or []
        for resource in flavor["resources"]
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("tenants")
    manifests = folder / "queues.yaml"
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in (TENANT, FLOODER)
    ]
    flavor = pool("none", {"cpu": 1}, flavor="cpus")[0]
    manifests.write_text(yaml.safe_dump_all([*namespaces, flavor]))
    options = DevOptions(directory=folder / "dev", manifests=(manifests,), speed=100.0, seed=3)
    async with running(options, lambda _: None) as system:
        place = Cluster(system)
        try:
            yield place
        finally:
            await place.kube.close()


async def test_job_is_decided_among_the_first_of_another_tenants_flood(cluster: Cluster) -> None:
    await cluster.queue("flooded", 1)
    await cluster.queue("calm", 1)

    async def flood(first: int, last: int) -> None:
        for number in range(first, last):
            await cluster.job(f"flood-{number}", "flooded", namespace=FLOODER)

    share = FLOOD // 4
    await flood(0, share)
    rest = asyncio.gather(*(flood(n * share, (n + 1) * share) for n in range(1, 4)))
    calm = await cluster.job("calm", "calm")
    await rest
    await cluster.until(calm, "Admitted")

    async def decided() -> bool:
        return len({one.name for one in await decisions(cluster.system, "job-flood-")}) == FLOOD

    await eventually(decided, look_seconds=1.0)
    names = list(dict.fromkeys(one.name for one in await decisions(cluster.system, "job-")))
    place = next(number for number, name in enumerate(names) if name.startswith("job-calm-"))
    assert place < FLOOD * 3 // 4, "it waited for the flood to end"


async def test_absurd_amounts_are_refused_or_wait_and_the_next_leader_reads_them(
    cluster: Cluster,
) -> None:
    queue = await cluster.queue("absurd", 3)
    for number, amount in enumerate(REFUSED):
        with pytest.raises(RefusedError):
            await cluster.job(f"refused-{number}", "absurd", amount)
    for number, amount in enumerate(LITTLE):
        little = await cluster.job(f"little-{number}", "absurd", amount)
        await cluster.until(little, "Admitted")
    never = [
        await cluster.job(f"never-{number}", "absurd", amount)
        for number, amount in enumerate(NEVER)
    ]
    never.append(await cluster.job("many", "absurd", "7E", parallelism=2**31 - 1))
    for one in never:
        await cluster.until(one, "QuotaReserved", is_so=False)
    await kill(cluster.system, "quota")
    after = await cluster.job("after", "absurd")
    await cluster.until(after, "Admitted")
    await cluster.until_used(queue, "1001m")


async def test_pods_that_were_given_back_are_not_taken_again(cluster: Cluster) -> None:
    queue = await cluster.queue("given-back", 3)
    first = await cluster.create(workload("first", "given-back", count=3))
    await cluster.until(first, "Admitted")
    second = await cluster.create(workload("second", "given-back", count=2))
    await cluster.until(second, "QuotaReserved", is_so=False)

    def ended(pods: int) -> Object:
        return {"status": {"reclaimablePods": [{"name": "main", "count": pods}]}}

    await cluster.patch(first, ended(2), subresource="status")
    await cluster.until(second, "Admitted")
    await cluster.until_used(queue, 3)
    await cluster.patch(first, ended(0), subresource="status")
    third = await cluster.create(workload("third", "given-back"))
    await cluster.until(third, "QuotaReserved", is_so=False)
    await cluster.delete(second)
    await cluster.until(third, "Admitted")
    await cluster.until_used(queue, 2)


async def test_queue_over_its_lowered_quota_admits_nobody_and_stops_nobody(
    cluster: Cluster,
) -> None:
    queue = await cluster.queue("lowered", 2)
    jobs = [await cluster.job(f"lowered-{number}", "lowered") for number in range(2)]
    for one in jobs:
        await cluster.until(one, "Admitted")
    await cluster.set_quota(queue, 1)
    late = await cluster.job("lowered-late", "lowered")
    await cluster.until(late, "QuotaReserved", is_so=False)
    await cluster.until_used(queue, 2)
    await cluster.delete(jobs[0])
    await cluster.until_used(queue, 1)
    assert not await cluster.is_admitted(late)
    assert await cluster.is_admitted(jobs[1])
    await cluster.delete(jobs[1])
    await cluster.until(late, "Admitted")


async def test_deleted_cohort_lends_nothing_more_and_its_borrower_goes_on(
    cluster: Cluster,
) -> None:
    lender = await cluster.create(_cohort("lender", cpus=2))
    borrower = await cluster.queue("borrower", 0, cohortName="lender")
    first = await cluster.job("borrows", "borrower")
    await cluster.until(first, "Admitted")
    await cluster.delete(lender)
    second = await cluster.job("borrows-late", "borrower")
    await cluster.until(second, "QuotaReserved", is_so=False)
    await cluster.until_used(borrower, 1)
    assert await cluster.is_admitted(first)
    await cluster.create(_cohort("lender", cpus=2))
    await cluster.until(second, "Admitted")


async def test_queue_in_a_cycle_of_cohorts_admits_again_once_the_cycle_is_gone(
    cluster: Cluster,
) -> None:
    await cluster.queue("cycled", 1, cohortName="outer")
    await cluster.create(_cohort("outer", parent="inner"))
    inner = await cluster.create(_cohort("inner", parent="outer"))
    waits = await cluster.job("cycled", "cycled")
    await cluster.until(waits, "QuotaReserved", is_so=False)
    await cluster.patch(inner, [{"op": "remove", "path": "/spec/parentName"}])
    await cluster.until(waits, "Admitted")


async def test_jobs_of_deleted_queues_run_on_and_give_their_quota_back_once(
    cluster: Cluster,
) -> None:
    queue = await cluster.queue("deleted", 1)
    runs = await cluster.job("deleted-runs", "deleted")
    await cluster.until(runs, "Admitted")
    waits = await cluster.job("deleted-waits", "deleted")
    await cluster.until(waits, "QuotaReserved", is_so=False)
    local_queue = pool("deleted", {"cpu": 1}, namespaces=(TENANT,))[2]
    await cluster.delete(local_queue)
    await cluster.until(waits, "QuotaReserved", "LocalQueue deleted doesn't exist", is_so=False)
    await cluster.delete(queue)
    await cluster.create(local_queue)
    assert await cluster.is_admitted(runs)
    await cluster.delete(runs)

    async def is_gone() -> bool:
        return not await cluster.fresh(queue)

    await eventually(is_gone, look_seconds=LOOK_SECONDS)
    again = await cluster.create(pool("deleted", {"cpu": 1}, flavor="cpus")[1])
    await cluster.until(waits, "Admitted")
    await cluster.until_used(again, 1)


def _cohort(name: str, *, parent: str = "", cpus: int = 0) -> Object:
    """A Cohort, with quota of its own if `cpus` are given."""
    spec: Object = {"parentName": parent} if parent else {}
    if cpus:
        quota = {"name": "cpu", "nominalQuota": str(cpus)}
        flavors = [{"name": "cpus", "resources": [quota]}]
        spec["resourceGroups"] = [{"coveredResources": ["cpu"], "flavors": flavors}]
    return {
        "apiVersion": kinds.COHORT.api_version,
        "kind": "Cohort",
        "metadata": {"name": name},
        "spec": spec,
    }
