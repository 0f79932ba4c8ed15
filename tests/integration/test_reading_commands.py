"""The commands that look, as a user runs them: a real broker, the real quota service behind it."""

import asyncio
import json
import os
import sys
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from services.ctl.main import app
from services.quota.app import assemble
from services.quota.settings import QuotaSettings
from shared.bus.nats.bus import NatsBus
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.hosts import Machine, PlatformState
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.outcomes import DeadLetter
from shared.runtime.command import CommandError, Exit
from shared.testing.builders import cluster_queue_spec, job_owner, observed, workload
from shared.testing.nats_server import nats_server
from shared.testing.waiting import PATIENCE_SECONDS, eventually

SETTLED_SECONDS = PATIENCE_SECONDS

Json = dict[str, Any]


class Office:
    """A broker with a small cluster's states on it, and a command line."""

    def __init__(self, url: str, bus: NatsBus) -> None:
        self.url = url
        self.bus = bus
        self._version = 0

    async def sluice(self, *arguments: str) -> Result:
        """Run a command; it has an event loop of its own."""
        options = ("--nats-url", self.url)
        return await asyncio.to_thread(
            lambda: CliRunner().invoke(app, [*arguments, *options], catch_exceptions=True)
        )

    async def decide(self, name: str, state: str, number: int, *, by: str | None) -> None:
        epoch, term = await self.bus.highest_term("ADMISSIONS")  # As whoever leads decides.
        decision = {
            "cluster": "hub", "namespace": "team", "name": name, "uid": f"u-{name[-1]}",
            "state": state, "epoch": epoch, "term": term, "number": number,
            "decided_at": datetime.now(UTC),
            "cluster_queue": "cq", "preempted_by": by, "message": "Preempted to accommodate",
        }  # fmt: skip
        await self.bus.publish(Admission.model_validate(decision))

    async def until(self, *arguments: str, shows: str) -> str:
        """What a command prints, once it shows that."""
        text = ""
        async with asyncio.timeout(SETTLED_SECONDS):
            while shows not in text:
                text = (await self.sluice(*arguments)).stdout
        return text

    async def observe(
        self, kind: Kind, name: str, spec: Json, *, namespace: str | None = None
    ) -> None:
        self._version += 1
        created = (datetime.now(UTC) - timedelta(hours=3)).isoformat()
        metadata = {"creationTimestamp": created}
        await self.bus.publish(
            observed(kind, name, spec, namespace, version=self._version, metadata=metadata)
        )

    async def workload(self, name: str, *, seconds: int, **more: Any) -> None:
        fields: Json = {
            "uid": f"u-{name}",
            "owner": job_owner(name),
            "created_at": datetime.now(UTC) - timedelta(seconds=seconds),
            "labels": {"app": name},
        }
        await self.bus.publish(workload(f"job-{name}", cpu=2, **(fields | more)))


def make_bus(url: str, instance: str) -> NatsBus:
    return NatsBus(url=url, instance=instance, now=lambda: datetime.now(UTC))


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    async with nats_server() as server:
        bus = make_bus(server.url, "test")
        await bus.start()
        office = Office(server.url, bus)
        await office.observe(kinds.NAMESPACE, "team", {})
        await office.observe(kinds.RESOURCE_FLAVOR, "default", {"nodeLabels": {"disk": "ssd"}})
        queue = cluster_queue_spec(2, cohortName="all")
        await office.observe(kinds.CLUSTER_QUEUE, "cq", queue)
        await office.observe(kinds.LOCAL_QUEUE, "main", {"clusterQueue": "cq"}, namespace="team")
        await office.workload("a", seconds=300)
        await office.workload("b", seconds=200)
        # A view follows its log by a moment.
        await office.until("get", "lq", "-A", shows="main")
        await office.until("get", "wl", "-A", shows="job-b")
        yield office
        await bus.stop()


@pytest.fixture
async def deciding(office: Office) -> AsyncIterator[Office]:
    """With a quota service that decides."""
    await office.bus.publish(Synced(cluster="hub", epoch="1", kinds=[], at=datetime.now(UTC)))
    bus = make_bus(office.url, "quota")
    await bus.start()
    settings = QuotaSettings(reason_delay_seconds=0)
    service = assemble(settings=settings, bus=bus, now=lambda: datetime.now(UTC))
    running = asyncio.create_task(service.run())
    await office.until("get", "wl", "-n", "team", shows="ADMITTED")
    # It decides before it answers: by then it does both.
    await office.until("explain", "team/b", shows="Position")
    yield office
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await bus.stop()


def error_of(result: Result) -> CommandError:
    assert isinstance(result.exception, CommandError)
    return result.exception


async def test_get_shows_workloads_and_queues_with_their_state(deciding: Office) -> None:
    # Where it stands in the queue comes from the quota service, which may be slow to say so.
    text = await deciding.until(
        "get", "workloads", "-n", "team", shows="PENDING    1          Wait"
    )
    lines = text.splitlines()
    assert lines[0].split() == ["NAME", "LOCALQUEUE", "STATUS", "POSITION", "REASON", "AGE"]
    assert lines[1].split()[:5] == ["job-b", "main", "PENDING", "1", "WaitingForQuota"]
    assert lines[2].split()[:5] == ["job-a", "main", "ADMITTED", "<none>", "<none>"]
    expected = ["cq", "all", "1", "1", "Active", "cpu", "2/2", "3h"]
    found: list[str] = []

    async def shows_the_queue() -> bool:
        found[:] = (await deciding.sluice("get", "cq")).stdout.splitlines()
        return [line.split() for line in found[1:]] == [expected]

    await eventually(shows_the_queue, lambda: found)
    assert found[0].split("   ")[0] == "NAME"
    counts = "queue=cq cluster=hub active=true pending=1 reserving=1 admitted=1"
    assert "default/cpu=2/2" in await deciding.until("top", "--once", shows=counts)


async def test_get_filters_rows_and_prints_every_format(office: Office) -> None:
    wide = (await office.sluice("get", "rf", "-o", "wide")).stdout
    assert wide.splitlines()[1].split() == ["default", "disk=ssd", "3h", "<none>", "cq"]
    names = (await office.sluice("get", "wl", "-A", "-o", "name", "-l", "app!=a")).stdout
    assert names == "workload.kueue.x-k8s.io/job-b\n"
    one = json.loads((await office.sluice("get", "lq", "main", "-n", "team", "-o", "json")).stdout)
    assert one["spec"] == {"clusterQueue": "cq"}
    listed = (await office.sluice("get", "co", "-o", "yaml")).stdout
    assert "kind: List" in listed
    rows = (await office.sluice("get", "wl", "a", "-n", "team", "--no-headers")).stdout
    assert rows.startswith("job-a ")


async def test_get_prints_every_kind_in_every_format(office: Office) -> None:
    await office.observe(kinds.MULTIKUEUE_CLUSTER, "north", {})
    now = datetime.now(UTC)
    machine = Machine(
        name="vm-1", provider="fake", state="running", holder="t", task_run="team:build",
        launched_at=now, deadline=now,
    )  # fmt: skip
    platform = PlatformState(cluster="hub", platform="linux/arm64", machines=[machine], at=now)
    await office.bus.publish(platform)
    await office.until("get", "spokes", shows="north")
    await office.until("get", "hosts", "-A", shows="vm-1")
    for kind in (
        "workloads",
        "clusterqueues",
        "localqueues",
        "cohorts",
        "flavors",
        "hosts",
        "spokes",
    ):
        shown = {
            form: await office.sluice("get", kind, "-A", "-o", form)
            for form in ("table", "wide", "json", "yaml", "name")
        }
        assert {result.exit_code for result in shown.values()} == {Exit.OK}, kind
        objects = json.loads(shown["json"].stdout)["items"]
        assert yaml.safe_load(shown["yaml"].stdout)["items"] == objects
        names = shown["name"].stdout.splitlines()
        rows = shown["table"].stdout.splitlines()[1:]
        wide = shown["wide"].stdout.splitlines()
        assert objects, kind
        assert len(names) == len(rows) == len(wide[1:]) == len(objects), kind
        assert all("/" in name for name in names)
        assert "\x1b" not in "".join(result.stdout for result in shown.values()), "no terminal"


async def test_empty_results_and_missing_services_have_messages_and_statuses(
    office: Office,
) -> None:
    empty = await office.sluice("get", "wl")
    assert empty.exit_code == Exit.OK
    assert "No resources found in default namespace.\n" in empty.stderr
    assert "No resources found\n" in (await office.sluice("get", "spokes")).stderr

    for watch in ((), ("--watch",)):
        stranger = error_of(await office.sluice("get", "cq", "other", *watch))
        assert (str(stranger), stranger.status) == ("clusterqueue other: not found", Exit.FAILED)

    await office.bus.publish(Synced(cluster="hub", epoch="1", kinds=[], at=datetime.now(UTC)))
    for command in (("get", "wl"), ("plan", "--remove", "clusterqueue/cq")):
        wrong = error_of(await office.sluice(*command, "--cluster", "hubb"))
        assert "--cluster hubb: no watcher has listed such a cluster; did you mean 'hub'?" in str(
            wrong
        )
    silent = error_of(await office.sluice("explain", "team/b"))
    assert silent.status == Exit.UNREACHABLE
    assert "nobody answers" in str(silent)


async def test_explain_answers_and_refuses_unknown_workloads(deciding: Office) -> None:
    text = await deciding.until("explain", "team/b", shows="WaitingForQuota")
    assert "cpu in flavor default: asked 2, free 0" in text
    assert "Held by:         job-a 2" in text
    # As kubectl has it: the name, and the namespace beside it.
    asked = ("explain", "job-b", "-n", "team", "-o", "json")
    told = json.loads((await deciding.sluice(*asked)).stdout)
    assert told[0]["position"] == 1
    await deciding.decide("job-b", "evicted", 9, by="team/big")
    await deciding.until("explain", "team/b", shows="Preempted:       by team/big at ")
    stranger = error_of(await deciding.sluice("explain", "team/nobody"))
    assert (stranger.status, str(stranger)) == (
        *(Exit.FAILED, "team/nobody: nothing is known of it"),
    )


async def offered(office: Office, line: str) -> list[str]:
    """What a shell is told at Tab."""
    asked = {
        "_SLUICE_COMPLETE": "complete_bash", "COMP_WORDS": line, "NATS_URL": office.url,
        "COMP_CWORD": str(line.count(" ")),
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("sluice"),
        stdout=asyncio.subprocess.PIPE, env={**os.environ, **asked},
    )  # fmt: skip
    printed, _ = await process.communicate()
    return printed.decode().split()


async def offers(office: Office, line: str, expected: list[str]) -> None:
    """Wait until the shell offers this: on a loaded machine a completion gives up before it has read."""
    found: list[str] = []

    async def holds() -> bool:
        found[:] = await offered(office, line)
        return found == expected

    await eventually(holds, lambda: f"{line!r} offers {found}, not {expected}")


async def test_completion_offers_existing_names(office: Office) -> None:
    await offers(office, "sluice get cq ", ["cq"])
    await offers(office, "sluice get wl -n team job-a", ["job-a"])
    await offers(office, "sluice get wl -n ", ["team"])
    await office.bus.publish(Synced(cluster="hub", epoch="1", kinds=[], at=datetime.now(UTC)))
    for command in ("get wl", "plan", "simulate"):
        await offers(office, f"sluice {command} --cluster ", ["hub"])
    for command in ("explain", "history", "who-preempted"):
        await offers(office, f"sluice {command} te", ["team/a", "team/b"])
    await offers(office, "sluice history team/b", ["team/b"])
    await offers(office, "sluice stop localqueue -n team ", ["main"])
    await office.observe(kinds.MULTIKUEUE_CLUSTER, "north", {})
    await office.until("get", "spokes", shows="north")
    for line in ("simulate --lost-spoke ", "spokes lost ", "spokes found n"):
        await offers(office, f"sluice {line}", ["north"])


async def watched(
    office: Office, *arguments: str, meanwhile: Callable[[], Awaitable[None]], lines: int
) -> list[str]:
    """The first lines that a watch prints, and those that follow `meanwhile`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.ctl.main", *arguments, "--nats-url", office.url),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(SETTLED_SECONDS):
            found = [(await process.stdout.readline()).decode() for _ in range(lines)]
            await meanwhile()
            return [*found, (await process.stdout.readline()).decode()]
    finally:
        process.kill()
        await process.wait()


async def test_watch_prints_changed_rows(office: Office) -> None:
    async def finish() -> None:
        await office.workload("b", seconds=200, phase="finished")

    lines = await watched(office, "get", "wl", "-n", "team", "-w", meanwhile=finish, lines=3)
    assert [line.split()[0] for line in lines] == ["NAME", "job-a", "job-b", "job-b"]
    assert "PENDING" in lines[2]
    assert "FINISHED" in lines[3]


async def test_preempted_command_reads_the_log_of_decisions(office: Office) -> None:
    for number, state in enumerate(("admitted", "evicted", "released", "waiting"), start=1):
        await office.decide("job-a", state, number, by="team/job-b" if state == "evicted" else None)
    for name in ("team/a", "team/job-a"):
        lines = (await office.sluice("who-preempted", name)).stdout.splitlines()
        assert len(lines) == 2
        assert lines[1].split()[1:4] == ["team/job-a", "cq", "team/job-b"]
    nobody = await office.sluice("who-preempted", "team/b")
    assert "Nobody preempted team/b" in nobody.stderr
    stranger = error_of(await office.sluice("who-preempted", "team/c"))
    assert str(stranger) == "team/c: the logs know nothing of it"


async def test_doctor_names_problems_and_advice(deciding: Office) -> None:
    await deciding.observe(kinds.LOCAL_QUEUE, "lost", {"clusterQueue": "none"}, namespace="team")
    letter = DeadLetter(
        service="patcher", original_subject="sluice.admission.hub.team.x", original_sequence=3,
        reason="state: Field required", body="{}", at=datetime.now(UTC),
    )  # fmt: skip
    await deciding.bus.publish(letter)
    await deciding.until("doctor", shows="dead letter")
    await deciding.until("doctor", shows="team/lost")

    found = await deciding.sluice("doctor", "-o", "json")

    assert found.exit_code == Exit.FAILED
    problems = {each["where"]: each["problem"] for each in json.loads(found.stdout)}
    assert problems == {
        "lease classifier-projection": "nobody holds it: new jobs do not become workloads",
        "lease watcher-hub": "nobody holds it: nothing new is seen of hub",
        "dead letter of patcher": "sluice.admission.hub.team.x (sequence 3): state: Field required",
        "LocalQueue team/lost": "points to ClusterQueue none, which is not there",
    }
    assert all(each["advice"] for each in json.loads(found.stdout))
    screen = await deciding.sluice("status")
    assert screen.exit_code == Exit.FAILED
    assert screen.stdout.startswith("Healthy: no, ")
    assert "  lease watcher-hub: nobody holds it: nothing new is seen of hub" in screen.stdout


IMPORTED = """
import contextlib, sys
from services.ctl.main import main
with contextlib.suppress(SystemExit):
    main()
print(*{name.partition(".")[0] for name in sys.modules})
"""


@pytest.mark.parametrize("command", [("get", "wl"), ("doctor",), ("status",), ("hosts",)])
async def test_looking_imports_no_slow_package(office: Office, command: tuple[str, ...]) -> None:
    """What made them slow to start: FastStream, and aiohttp, which nats-py imports if it is there."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", IMPORTED, *command, "--nats-url", office.url),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await running.communicate()
    heavy = {"aiohttp", "faststream", "kubernetes_asyncio", "opentelemetry", "uvicorn"}
    imported = set(out.decode().splitlines()[-1].split())
    assert "nats" in imported
    assert heavy & imported == set()


async def test_support_bundle_holds_what_the_commands_show(
    deciding: Office, tmp_path: Path
) -> None:
    file = tmp_path / "bundle.tar.gz"

    made = await deciding.sluice("support-bundle", "--out", str(file), "--directory", str(tmp_path))

    assert made.exit_code == Exit.OK, made.output
    assert "could not be read" not in made.output
    with tarfile.open(file) as archive:
        texts = {
            member.name.removeprefix("bundle/"): opened.read().decode()
            for member in archive
            if (opened := archive.extractfile(member)) is not None
        }
    streams = {stream["config"]["name"] for stream in json.loads(texts["streams.json"])["streams"]}
    assert {"ADMISSIONS", "WORKLOADS", "DEAD"} <= streams
    assert "NAMESPACE" in texts["workloads.txt"]
    assert "cq" in texts["clusterqueues.txt"]
    assert {"status.txt", "doctor.txt", "dead-letters.txt", "spokes.txt"} <= set(texts)
