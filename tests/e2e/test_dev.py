"""`sluice dev` as a process: what it starts it keeps running, and takes with it when it goes."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from services.ctl.programs import SERVICES
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import MUTATING_WEBHOOK, Object
from shared.contracts.simulation import DURATION
from shared.kube.client import HttpKube
from shared.kube.config import from_kubeconfig
from shared.kube.port import UnavailableError
from shared.runtime.command import Exit
from shared.testing.waiting import PATIENCE_SECONDS, eventually, first_value

START_SECONDS = 300
STARTED = "the service has started"
"""What a service logs once."""


async def started(*arguments: str, cwd: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.ctl.main", "dev", *arguments),
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def read_until(process: asyncio.subprocess.Process, text: str) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(START_SECONDS):
        async for line in process.stdout:
            lines.append(line.decode().rstrip())
            if text in lines[-1]:
                return lines
    raise AssertionError("it ended:\n" + "\n".join(lines))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def state_of(folder: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((folder / ".sluice" / "state.json").read_text())
    return state


@asynccontextmanager
async def dev(
    tmp_path: Path, *options: str, ready: Iterable[str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await started("--quiet", *options, cwd=tmp_path)
    try:
        lines = await read_until(process, "ready; Ctrl-C stops everything")
        assert lines[0] == "sluice dev: starting, with files in .sluice"
        for name in ready:
            assert any(f": {name} is ready (" in line for line in lines), lines
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_dev_runs_all_services_restarts_what_dies_and_sigterm_leaves_no_process(
    tmp_path: Path,
) -> None:
    async with dev(tmp_path, ready=["all"]) as process:
        await a_system_that_recovers(process, tmp_path)


async def a_system_that_recovers(dev: asyncio.subprocess.Process, tmp_path: Path) -> None:
    state = state_of(tmp_path)
    assert set(state["children"]) == {"nats-server", "simulator", "all"}
    await a_job_is_held_admitted_and_finished(state["kubeconfig"])
    await a_killed_service_is_restarted(tmp_path)
    await the_cluster_survives_its_simulator(tmp_path)
    await another_dev_is_refused(tmp_path)

    children: dict[str, int] = state_of(tmp_path)["children"]
    dev.send_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await dev.wait() == Exit.OK
    assert not any(alive(pid) for pid in {*state["children"].values(), *children.values()})
    assert not (tmp_path / ".sluice" / "state.json").exists()


async def a_job_is_held_admitted_and_finished(kubeconfig: str) -> None:
    kube = HttpKube(from_kubeconfig(kubeconfig))
    try:
        (webhook,) = (await kube.list(MUTATING_WEBHOOK)).items
        assert webhook["webhooks"][0]["failurePolicy"] == "Fail"
        created = await kube.create(kinds.JOB, job())
        assert created["spec"]["suspend"] is True

        async def succeeded() -> bool:
            found = await kube.get(kinds.JOB, "team-tenant", "batch")
            return (found.get("status") or {}).get("succeeded") == 1

        await eventually(succeeded, look_seconds=0.1)
    finally:
        await kube.close()


async def a_killed_service_is_restarted(folder: Path) -> None:
    log = folder / ".sluice" / "logs" / "all.log"
    before = log.read_text().count(STARTED)
    os.kill(state_of(folder)["children"]["all"], signal.SIGKILL)
    await eventually(lambda: log.read_text().count(STARTED) == before + 1)


async def another_dev_is_refused(folder: Path) -> None:
    second = await started(cwd=folder)
    assert second.stdout is not None
    refused = (await second.stdout.read()).decode()
    assert "another `sluice dev` or `sluice demo` uses it" in refused
    assert await second.wait() == Exit.WRONG_INPUT


async def the_cluster_survives_its_simulator(folder: Path) -> None:
    state = state_of(folder)
    kube = HttpKube(from_kubeconfig(state["kubeconfig"]))
    try:
        before = await kube.get(kinds.CLUSTER_QUEUE, None, "cluster-pipeline-queue")
        os.kill(state["children"]["simulator"], signal.SIGKILL)

        async def answered() -> Object | None:
            with suppress(UnavailableError):
                return await kube.get(kinds.CLUSTER_QUEUE, None, "cluster-pipeline-queue")
            return None

        after = await first_value(answered, look_seconds=0.1)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
    finally:
        await kube.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")
async def test_no_process_outlives_a_killed_dev(tmp_path: Path) -> None:
    services = {"pairs", *(program.value for program in SERVICES)}
    async with dev(tmp_path, "--processes", ready=services) as process:
        children: dict[str, int] = state_of(tmp_path)["children"]
        assert set(children) == {"nats-server", "simulator", *services}
        assert all(alive(pid) for pid in children.values())
        process.kill()
        await process.wait()
        await eventually(lambda: not any(alive(pid) for pid in children.values()))


def job() -> Object:
    container: Object = {
        "name": "work",
        "image": "registry.example/batch:1",
        "resources": {"requests": {"cpu": "1"}},
    }
    wish = {DURATION: "1s"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "namespace": "team-tenant",
            "name": "batch",
            "labels": {"kueue.x-k8s.io/queue-name": "batch-queue"},
        },
        "spec": {
            "template": {
                "metadata": {"annotations": wish},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            }
        },
    }
