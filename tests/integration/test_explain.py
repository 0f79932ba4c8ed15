"""Why does it wait? Asked from the real quota service, for each kind of waiting."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.console.view import View
from services.ctl.inspect.explain import explained
from services.quota.app import assemble
from services.quota.queries.replica import ReadReplica
from services.quota.settings import QuotaSettings
from shared.bus.port import UnavailableError
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.admissions import Term
from shared.contracts.messages.effects import CheckState
from shared.contracts.messages.explain import (
    ExplainAnswer,
    ExplainRequest,
    Explanation,
    PositionsAnswer,
    PositionsRequest,
)
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.workloads import Finish, OwnerReference, PodSet, WorkloadState
from shared.testing.waiting import PATIENCE_SECONDS
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SETTLED_SECONDS = PATIENCE_SECONDS
SETTINGS = QuotaSettings(reason_delay_seconds=0)

Json = dict[str, Any]


class Site:
    """A cluster told by its messages, a quota service that decides for it, and somebody who asks."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.bus = MemoryBus(self.server, instance="test")
        self.running: list[tuple[asyncio.Task[None], MemoryBus]] = []
        self.view = View(
            bus=self.bus, now=lambda: datetime.now(UTC), new_replica=lambda: ReadReplica(SETTINGS)
        )
        self.looking: asyncio.Task[None] | None = None
        self._version = 0

    async def look(self) -> None:
        """Let somebody look who decides nothing."""
        self.looking = asyncio.create_task(self.view.run())

    async def start_quota(self, name: str = "a") -> None:
        bus = MemoryBus(self.server, instance=f"quota-{name}")
        await bus.start()
        service = assemble(settings=SETTINGS, bus=bus, now=lambda: datetime.now(UTC))
        self.running.append((asyncio.create_task(service.run()), bus))

    async def stop_quota(self) -> None:
        task, bus = self.running.pop(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.stop()

    async def close(self) -> None:
        while self.running:
            await self.stop_quota()
        if self.looking is not None:
            self.looking.cancel()
            await asyncio.gather(self.looking, return_exceptions=True)
        await self.bus.stop()

    async def observe(
        self, kind: Kind, name: str, spec: Json, *, namespace: str | None = None, **more: Any
    ) -> None:
        self._version += 1
        metadata = {"name": name, "namespace": namespace, **more.pop("metadata", {})}
        await self.bus.publish(
            Observed(
                cluster="hub", group=kind.group, version=kind.version, plural=kind.plural,
                kind=kind.kind, namespace=namespace, name=name, uid=f"{kind.plural}-{name}",
                resource_version=str(self._version),
                object={"metadata": metadata, "spec": spec, **more},
            )
        )  # fmt: skip

    async def queue(self, name: str = "cq", *, cpu: int = 4, **spec: Any) -> None:
        flavor = spec.pop("flavor", "default")
        quota = {"name": "cpu", "nominalQuota": str(cpu), **spec.pop("quota", {})}
        group = {"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": [quota]}]}
        await self.observe(
            kinds.CLUSTER_QUEUE, name, {"namespaceSelector": {}, "resourceGroups": [group], **spec}
        )

    async def local(self, name: str, to: str = "cq", ns: str = "team", **spec: Any) -> None:
        await self.observe(kinds.LOCAL_QUEUE, name, {"clusterQueue": to, **spec}, namespace=ns)

    async def basics(self) -> None:
        for namespace in ("team", "others"):
            await self.observe(kinds.NAMESPACE, namespace, {})
        await self.observe(kinds.RESOURCE_FLAVOR, "default", {})
        await self.local("main")
        await self.local("main", ns="others")

    async def synced(self) -> None:
        await self.bus.publish(Synced(cluster="hub", epoch="1", kinds=[], at=NOON))

    async def workload(self, name: str, *, cpu: str = "1", age: int = 0, **more: Any) -> None:
        common: Json = {"namespace": "team", "queue": "main", "phase": "waiting"}
        await self.bus.publish(
            WorkloadState.model_validate(
                {
                    **common, "cluster": "hub", "name": name, "uid": f"u-{name}", "version": "1",
                    "created_at": NOON - timedelta(seconds=age),
                    "pod_sets": [PodSet(name="main", count=1, requests={"cpu": cpu})], **more,
                }
            )
        )  # fmt: skip

    async def explain(self, name: str, reason: str, *, namespace: str = "team") -> Explanation:
        """The answer once it has settled on this reason."""
        question = ExplainRequest(namespace=namespace, name=name).model_dump_json().encode()
        deadline = asyncio.get_running_loop().time() + SETTLED_SECONDS
        told = "nothing"
        while asyncio.get_running_loop().time() < deadline:
            try:
                data = await self.bus.request(ExplainRequest.subject, question, timeout_seconds=2.0)
            except UnavailableError as error:
                told = str(error)
            else:
                answer = ExplainAnswer.model_validate_json(data)
                seen = self.view.replica.explain(ExplainRequest(namespace=namespace, name=name))
                if not (answer.items and answer.items[0].reason == reason):
                    told = str(answer)
                elif seen != answer:
                    told = f"{answer}, or as a follower sees it {seen}"
                else:
                    return answer.items[0]
            await asyncio.sleep(0.01)
        raise AssertionError(f"{name} does not wait for {reason}, but {told}")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    await site.bus.start()
    await site.basics()
    await site.start_quota()
    await site.look()
    yield site
    await site.close()


async def test_one_that_lacks_quota_is_told_what_is_free_and_who_holds_it(site: Site) -> None:
    await site.queue(cpu=4)
    await site.workload("mine", cpu="2", age=30)
    await site.workload("theirs", cpu="1", age=20, namespace="others")
    await site.workload("big", cpu="2", age=10)
    await site.synced()

    told = await site.explain("big", "WaitingForQuota")

    (shortage,) = told.shortages
    assert (shortage.flavor, shortage.resource) == ("default", "cpu")
    assert (shortage.asked, shortage.free, shortage.most) == ("2", "1", "4")
    assert [(holder.name, holder.amount) for holder in shortage.holders] == [("mine", "2")]
    assert (shortage.holders_elsewhere, shortage.held_elsewhere) == (1, "1")
    assert told.remedy == "1 more cpu in flavor default must become free"
    assert told.position == 1
    assert told.expected_start is None
    assert told.expected_start_unknown_because


async def test_one_behind_others_is_told_who_is_ahead_by_name_only_at_home(site: Site) -> None:
    await site.queue(cpu=1)
    await site.workload("running", age=99)
    for age, (name, namespace) in enumerate(
        (("last", "team"), ("b", "others"), ("a", "others"), ("first", "team"))
    ):
        await site.workload(name, age=age, namespace=namespace)
    await site.synced()

    told = await site.explain("last", "WaitingForQuota")

    assert (told.position, told.position_in_local_queue) == (4, 2)
    assert told.ahead == ["first"]
    assert (told.ahead_here, told.ahead_elsewhere) == (1, 2)
    assert "others/" not in told.model_dump_json()


async def test_what_may_be_borrowed_is_said_apart(site: Site) -> None:
    await site.queue(cpu=2, cohortName="all")
    await site.queue("lender", cpu=3, cohortName="all")
    await site.workload("first", cpu="1", age=9)
    await site.workload("second", cpu="5", age=8)
    await site.synced()

    (shortage,) = (await site.explain("second", "WaitingForQuota")).shortages

    assert (shortage.asked, shortage.free, shortage.borrowable, shortage.most) == (
        *("5", "4", "3", "5"),
    )


async def test_one_that_asks_more_than_there_ever_is_is_told_so(site: Site) -> None:
    await site.queue(cpu=4)
    await site.workload("huge", cpu="9")
    await site.synced()

    told = await site.explain("huge", "ExceedsMaxQuota")

    assert told.shortages[0].most == "4"
    assert told.remedy == "raise the quota of cpu in flavor default above 4, or ask for less"


STOPPED: list[Any] = [
    pytest.param(
        {"queue": "none"}, "Misconfigured", "LocalQueue none doesn't exist",
        id="its LocalQueue does not exist",
    ),
    pytest.param(
        {"queue": "lost"}, "Misconfigured", "ClusterQueue nowhere doesn't exist",
        id="its LocalQueue points nowhere",
    ),
    pytest.param(
        {"queue": "held"}, "Suspended", "LocalQueue held is inactive",
        id="its LocalQueue is stopped",
    ),
    pytest.param(
        {"queue": "shut"}, "Suspended", "ClusterQueue shut is inactive",
        id="its ClusterQueue is stopped",
    ),
    pytest.param(
        {"queue": "broken"}, "Suspended", "ClusterQueue broken is inactive",
        id="its ClusterQueue names a flavor that is not there",
    ),
    pytest.param(
        {"queue": "picky"}, "Misconfigured", "doesn't match ClusterQueue selector",
        id="its namespace is not selected",
    ),
    pytest.param(
        {"queue": "tainted"}, "NoMatchingFlavor", "untolerated taint",
        id="it does not tolerate the only flavor",
    ),
    pytest.param(
        {"active": False}, "Deactivated", "The workload is deactivated",
        id="somebody deactivated it",
    ),
    pytest.param(
        {"on_hold": "paused by its user"}, "OnHold", "paused by its user", id="its user holds it"
    ),
    pytest.param(
        {"inadmissible": "WorkloadPriorityClass urgent not found"}, "Misconfigured",
        "WorkloadPriorityClass urgent not found", id="its priority class is missing",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("how", "reason", "message"), STOPPED)
async def test_one_that_quota_cannot_help(site: Site, how: Json, reason: str, message: str) -> None:
    await site.queue()
    await site.queue("shut", stopPolicy="Hold")
    await site.queue("broken", flavor="missing")
    await site.queue("picky", namespaceSelector={"matchLabels": {"a": "b"}})
    await site.queue("tainted", flavor="tainted")
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    await site.observe(kinds.RESOURCE_FLAVOR, "tainted", {"nodeTaints": [taint]})
    for name in ("shut", "broken", "picky", "tainted"):
        await site.local(name, to=name)
    await site.local("lost", to="nowhere")
    await site.local("held", stopPolicy="Hold")
    await site.workload("one", **how)
    await site.synced()

    told = await site.explain("one", reason)

    assert message in told.message
    assert told.remedy, "it says what would help"


async def test_one_that_preempted_is_told_whom_it_waits_for(site: Site) -> None:
    await site.queue(cpu=2, preemption={"withinClusterQueue": "LowerPriority"})
    await site.workload("mine", age=9, phase="running", pods_active=True, held=False)
    await site.workload(
        "theirs", age=9, phase="running", pods_active=True, held=False, namespace="others"
    )
    await site.synced()
    await site.explain("mine", "Admitted")
    await site.explain("theirs", "Admitted", namespace="others")
    await site.workload("urgent", cpu="2", priority=10)

    told = await site.explain("urgent", "WaitingForPreemptedWorkloads")

    assert (told.victims, told.victims_elsewhere) == (["mine"], 1)
    assert told.remedy == "their pods must end"
    assert (await site.explain("mine", "Preempted")).message.startswith("evicted (Preempted)")


async def test_one_whose_own_limit_forbids_to_borrow_is_told_its_own_end(site: Site) -> None:
    await site.queue(cpu=2, cohortName="all", quota={"borrowingLimit": "1"})
    await site.queue("lender", cpu=9, cohortName="all")
    await site.workload("one", cpu="5")
    await site.synced()

    (shortage,) = (await site.explain("one", "ExceedsMaxQuota")).shortages

    assert (shortage.asked, shortage.free, shortage.borrowable, shortage.most) == (
        *("5", "3", "1", "3"),
    )


async def test_one_whose_quota_was_lent_is_told_who_borrows_it(site: Site) -> None:
    await site.queue(cpu=2, cohortName="all")
    await site.queue("lender", cpu=2, cohortName="all")
    await site.local("lending", to="lender")
    for name in ("a", "b", "c"):
        await site.workload(name, age=9, phase="running", pods_active=True, held=False)
    await site.synced()
    await site.explain("c", "Admitted")
    await site.workload("owner", cpu="2", queue="lending")

    (shortage,) = (await site.explain("owner", "WaitingForQuota")).shortages

    assert (shortage.asked, shortage.free, shortage.most) == ("2", "1", "4")
    assert [holder.name for holder in shortage.holders] == ["a", "b", "c"]


async def test_one_that_may_not_preempt_the_more_important_waits_for_them(site: Site) -> None:
    await site.queue(cpu=1, preemption={"withinClusterQueue": "LowerPriority"})
    await site.workload("important", priority=9, age=9)
    await site.workload("one", priority=1)
    await site.synced()

    told = await site.explain("one", "WaitingForQuota")

    assert told.victims == []
    assert [holder.name for holder in told.shortages[0].holders] == ["important"]


async def test_one_that_may_go_to_two_flavors_is_told_what_each_lacks(site: Site) -> None:
    quota = [{"name": "cpu", "nominalQuota": "1"}]
    flavors = [{"name": name, "resources": quota} for name in ("default", "spot")]
    group = {"coveredResources": ["cpu"], "flavors": flavors}
    await site.observe(kinds.RESOURCE_FLAVOR, "spot", {})
    await site.observe(
        kinds.CLUSTER_QUEUE, "cq", {"namespaceSelector": {}, "resourceGroups": [group]}
    )
    for age, name in enumerate(("late", "second", "first")):
        await site.workload(name, age=age)
    await site.synced()

    told = await site.explain("late", "WaitingForQuota")

    assert [(s.flavor, s.asked, s.free) for s in told.shortages] == [
        *(("default", "1", "0"), ("spot", "1", "0")),
    ]
    assert [[holder.name for holder in s.holders] for s in told.shortages] == [
        ["first"],
        ["second"],
    ]
    assert told.remedy == (
        "1 more cpu in flavor default must become free; or "
        "1 more cpu in flavor spot must become free"
    )


async def test_one_that_backs_off_is_told_until_when(site: Site) -> None:
    until = datetime.now(UTC) + timedelta(hours=1)
    await site.queue()
    await site.workload("one", requeue_at=until)
    await site.synced()

    told = await site.explain("one", "PendingEvaluation")

    assert told.requeue_at is not None
    assert abs((told.requeue_at - until).total_seconds()) < 0.001
    assert told.remedy == "its back-off must end"


async def test_one_that_asks_for_what_no_queue_offers_is_told_so(site: Site) -> None:
    await site.queue()
    await site.workload("one", pod_sets=[PodSet(name="main", count=1, requests={"gpu": "1"})])
    await site.synced()

    told = await site.explain("one", "NoMatchingFlavor")

    assert "resource gpu unavailable in ClusterQueue" in told.message
    assert told.remedy.startswith("offer the resource")


async def test_one_whose_cluster_is_not_listed_to_the_end_is_told_to_wait_for_that(
    site: Site,
) -> None:
    await site.queue()
    await site.workload("one")

    told = await site.explain("one", "PendingEvaluation")

    assert told.message == "Cluster hub has not been listed to the end yet"
    assert told.remedy == "the watcher of hub must finish its first list"


async def test_one_that_nobody_admitted_is_told_that_its_quota_counts(site: Site) -> None:
    await site.queue(cpu=1)
    for name in ("first", "one"):
        await site.workload(name, phase="running", pods_active=True, held=False)
    await site.synced()

    assert "nobody admitted it" in (await site.explain("one", "Admitted")).message


async def test_one_with_quota_is_told_which_checks_it_waits_for(site: Site) -> None:
    check = {"controllerName": "sluicegate.dev/machines"}
    await site.observe(kinds.ADMISSION_CHECK, "machines", check)
    await site.observe(kinds.ADMISSION_CHECK, "window", check)
    await site.queue(admissionChecks=["machines", "window"])
    await site.workload("one")
    await site.synced()
    told = await site.explain("one", "Reserved")
    assert told.checks == {"machines": "Pending", "window": "Pending"}

    await site.bus.publish(
        CheckState(
            cluster="hub", namespace="team", name="one", uid="u-one", check="window",
            state="Ready", at=datetime.now(UTC),
        )
    )  # fmt: skip
    async with asyncio.timeout(SETTLED_SECONDS):
        while told.checks["window"] != "Ready":
            told = await site.explain("one", "Reserved")
    assert told.checks == {"machines": "Pending", "window": "Ready"}


async def test_one_may_be_named_by_its_job_and_is_told_when_it_is_over(site: Site) -> None:
    await site.queue()
    owner = OwnerReference(api_version="batch/v1", kind="Job", plural="jobs", name="train", uid="j")
    await site.workload("job-train-1", owner=owner)
    await site.synced()
    told = await site.explain("train", "Admitted")
    assert (told.name, told.job) == ("job-train-1", "Job train")

    finish = Finish(success=False, message="OOM", at=NOON)
    await site.workload("job-train-1", owner=owner, phase="finished", finish=finish)
    assert (await site.explain("train", "Finished")).message == "It failed: OOM"


async def test_of_a_stranger_and_of_nonsense_it_says_what_is_wrong(site: Site) -> None:
    await site.queue()
    await site.workload("one")
    await site.synced()
    await site.explain("one", "Admitted")

    async def problem(question: bytes) -> str:
        data = await site.bus.request(ExplainRequest.subject, question, timeout_seconds=2.0)
        return ExplainAnswer.model_validate_json(data).problem

    assert await problem(b'{"namespace":"others","name":"one"}') == (
        "nothing is known of others/one"
    )
    assert await problem(b'{"name":"one"}') == "namespace: Field required"
    assert "JSON" in await problem(b"one")


async def test_positions_are_those_of_the_queue_and_can_be_narrowed(site: Site) -> None:
    await site.queue(cpu=0)
    for age, (name, namespace) in enumerate(
        (("d", "team"), ("c", "others"), ("b", "team"), ("a", "others"))
    ):
        await site.workload(name, age=age, namespace=namespace)
    await site.workload("urgent", priority=5)
    await site.synced()
    await site.explain("d", "ExceedsMaxQuota")

    async def ask(**fields: Any) -> list[tuple[str, int, int]]:
        question = PositionsRequest(**fields).model_dump_json(exclude_none=True).encode()
        data = await site.bus.request(PositionsRequest.subject, question, timeout_seconds=2.0)
        items = PositionsAnswer.model_validate_json(data).items
        return [(item.name, item.position, item.position_in_local_queue) for item in items]

    assert await ask() == [
        *(("urgent", 1, 1), ("a", 2, 1), ("b", 3, 2), ("c", 4, 2), ("d", 5, 3)),
    ]
    assert await ask(namespace="others") == [("a", 2, 1), ("c", 4, 2)]
    assert await ask(offset=1, limit=2) == [("a", 2, 1), ("b", 3, 2)]
    assert await ask(cluster_queue="none") == []


async def test_only_the_leader_answers_and_its_successor_after_it(site: Site) -> None:
    await site.queue(cpu=0)
    await site.workload("one")
    await site.synced()
    await site.explain("one", "ExceedsMaxQuota")
    await site.start_quota("b")
    # A standby that answered would know nothing of it, every other time.
    for _ in range(6):
        question = ExplainRequest(namespace="team", name="one").model_dump_json().encode()
        data = await site.bus.request(ExplainRequest.subject, question, timeout_seconds=2.0)
        assert ExplainAnswer.model_validate_json(data).items
    await site.stop_quota()
    assert (await site.explain("one", "ExceedsMaxQuota")).position == 1


async def test_one_that_leads_no_more_answers_no_more_though_its_bus_goes_on(site: Site) -> None:
    await site.queue(cpu=0)
    await site.workload("one")
    await site.synced()
    await site.explain("one", "ExceedsMaxQuota")
    await site.start_quota("b")
    (_, former), (_, later) = site.running
    site.server.release("quota", former.holder)
    async with asyncio.timeout(SETTLED_SECONDS):
        while await term_holder(site) != later.instance:  # noqa: ASYNC110 - a log tells when asked
            await asyncio.sleep(0.05)
    await site.workload("two")
    await site.explain("two", "ExceedsMaxQuota")
    await asyncio.sleep(0.2)
    # What the former one still remembers knows nothing of the second.
    for _ in range(6):
        question = ExplainRequest(namespace="team", name="two").model_dump_json().encode()
        data = await site.bus.request(ExplainRequest.subject, question, timeout_seconds=2.0)
        assert ExplainAnswer.model_validate_json(data).items


async def term_holder(site: Site) -> str:
    entry = await site.bus.latest("ADMISSIONS", "sluice.term.quota")
    assert entry is not None
    return Term.decode(entry.data).holder


async def test_the_command_tells_it_in_sentences(site: Site) -> None:
    await site.queue(cpu=2)
    await site.workload("held", cpu="2", age=60)
    await site.workload("next", cpu="2", age=50, namespace="others")
    await site.workload("one", cpu="1", age=40)
    await site.synced()
    told = await site.explain("one", "WaitingForQuota")

    text = "\n".join(explained(told.model_dump(mode="json", exclude_none=True), NOON))

    for line in (
        "team/one in hub",
        "Reason:          WaitingForQuota",
        "Queue:           main -> ClusterQueue cq, priority 0",
        "(40s)",
        "Position:        2 in ClusterQueue cq, 1 in LocalQueue main",
        "Ahead:           1 of other namespaces",
        "cpu in flavor default: asked 1, free 0 (of which borrowable 0), at most 2",
        "Held by:         held 2",
        "What would help: 1 more cpu in flavor default must become free",
        "Expected start:  unknown because ",
    ):
        assert line in text
