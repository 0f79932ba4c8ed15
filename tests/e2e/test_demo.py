"""The demo as a user starts it, with a small load: everything real, and the last line says how it went."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shared.runtime.command import Exit
from shared.testing.waiting import PATIENCE_SECONDS

SECONDS_MAX = 600

CASES = """
cases:
- name: a build after a merge
  pipelineRun:
    apiVersion: tekton.dev/v1
    kind: PipelineRun
    metadata:
      namespace: team-tenant
      name: plr
      labels: {pipelinesascode.tekton.dev/event-type: push}
    spec:
      pipelineRef: {name: p}
      params: [{name: build-platforms, value: [linux/arm64, linux/arm64]}]
  expected: {priorityClass: konflux-post-merge-build, requests: {linux-arm64: 2, aws-ip: 2}}
- name: a platform without a name
  pipelineRun:
    apiVersion: tekton.dev/v1
    kind: PipelineRun
    metadata: {namespace: team-tenant, name: plr}
    spec:
      pipelineRef: {name: p}
      params: [{name: build-platforms, value: [""]}]
  expected: {error: {code: 500, contains: resource key cannot be empty}}
- name: a platform that no quota covers
  pipelineRun:
    apiVersion: tekton.dev/v1
    kind: PipelineRun
    metadata: {namespace: new-tenant, name: plr}
    spec:
      pipelineRef: {name: p}
      params: [{name: build-platforms, value: [linux/riscv64]}]
  expected: {priorityClass: konflux-default, requests: {linux-riscv64: 1, aws-ip: 1}}
- name: a build that is not as expected
  pipelineRun:
    apiVersion: tekton.dev/v1
    kind: PipelineRun
    metadata:
      namespace: team-tenant
      name: plr
      labels: {pipelinesascode.tekton.dev/event-type: push}
    spec:
      pipelineRef: {name: p}
      params: [{name: build-platforms, value: [linux/arm64]}]
  expected: {priorityClass: konflux-none, requests: {linux-arm64: 1, aws-ip: 1}}
"""


async def demo(cwd: Path, *arguments: str) -> tuple[int, list[str]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.ctl.main", "demo", *arguments),
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS_MAX):
        lines = (await process.stdout.read()).decode().splitlines()
        return await process.wait(), lines


async def test_demo_of_given_pipelineruns_fails_for_the_expectation_that_does_not_hold(
    tmp_path: Path,
) -> None:
    (tmp_path / "cases.yaml").write_text(CASES)
    status, lines = await demo(tmp_path, "--pipelineruns", "cases.yaml", "--speed", "600")
    text = "\n".join(lines)
    assert lines[-1].startswith("demo: failed: 1 of 4 are not as expected"), text
    assert status == Exit.FAILED
    merge = "a build after a merge: konflux-post-merge-build, aws-ip=2, linux-arm64=2"
    assert f"ok      {merge}, ran to the end" in text
    assert "a platform without a name: denied: " in text
    assert "covers linux-riscv64: added" in text
    assert "class konflux-post-merge-build, expected konflux-none" in text


async def test_kept_demo_can_be_inspected_and_sigterm_leaves_no_process(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.ctl.main", "demo", "--keep"),
        *("--runs", "16", "--jobs", "6", "--speed", "600"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(SECONDS_MAX):
        async for line in process.stdout:
            lines.append(line.decode().rstrip())
            if lines[-1].startswith("demo: left running"):
                break
    assert lines[-2].startswith("demo: ok"), "\n".join(lines)
    text = "\n".join(lines)
    assert all(word in text for word in ("launched", "reused", "mean wait", "left behind")), text
    assert "ok      every build got a machine or was told why, and none is left behind" in text
    state = json.loads((tmp_path / ".sluice" / "state.json").read_text())
    told = subprocess.run(  # noqa: ASYNC221 - nothing else runs here meanwhile
        [
            sys.executable,
            "-m",
            "services.ctl.main",
            "history",
            "--all",
            "releng-tenant/release-0002",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert told.returncode == Exit.OK, told.stderr
    assert "admitted in cluster-pipeline-queue: tekton.dev/pipelineruns=1" in told.stdout
    assert "release applied" in told.stdout
    assert re.fullmatch("trace: [0-9a-f]{32}", told.stdout.splitlines()[-1])
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await process.wait() == Exit.OK, "all checks passed"
    for pid in state["children"].values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
