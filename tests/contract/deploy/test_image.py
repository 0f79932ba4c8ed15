"""The image: built from what is locked, for both architectures; and whoever asks for its health hears no."""

import asyncio
import re
import shlex
import tomllib
from typing import Any, Final

import pytest
import yaml

from shared.testing.waiting import PATIENCE_SECONDS
from tests.contract.deploy.rendering import ROOT

DOCKERFILE: Final = (ROOT / "deploy" / "image" / "Dockerfile").read_text()
LOCK: Final = tomllib.loads((ROOT / "uv.lock").read_text())
MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
UV: Final = (ROOT / "deploy" / "image" / "uv.txt").read_text()


def packages() -> dict[str, dict[str, Any]]:
    """Everything that ours needs to run, by name."""
    known = {one["name"]: one for one in LOCK["package"]}
    found: dict[str, dict[str, Any]] = {}
    left = [dependency["name"] for dependency in known["sluicegate"]["dependencies"]]
    while left:
        name = left.pop()
        if name not in found:
            found[name] = known[name]
            wanted = known[name].get("dependencies", [])
            extras = known[name].get("optional-dependencies", {}).values()
            left += [
                one["name"] for one in (*wanted, *(each for extra in extras for each in extra))
            ]
    return found


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_every_dependency_has_a_wheel_for_the_platform(machine: str) -> None:
    """A wheel for it or for any, for a base with glibc; else a source that needs no compiler."""
    lacking = []
    for name, package in packages().items():
        wheels = [wheel["url"].rpartition("/")[2] for wheel in package.get("wheels", ())]
        fits = re.compile(rf"-none-any\.whl$|manylinux\S*_{machine}")
        if not any(fits.search(wheel) for wheel in wheels):
            lacking.append(name)
    assert lacking == ["nkeys"], "nkeys is a source of pure Python"


def test_every_installed_file_has_a_pinned_hash() -> None:
    for name, package in packages().items():
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ())]
        assert files, name
        assert all(file["hash"].startswith("sha256:") for file in files), name


def test_every_step_installs_from_a_lock() -> None:
    steps = [
        line
        for line in DOCKERFILE.splitlines()
        if re.search(r"\b(install|sync|add)\b", line) and line.startswith("RUN")
    ]
    assert len(steps) == 3
    assert all("--require-hashes" in step or "uv sync --locked" in step for step in steps)
    assert UV.count("--hash=sha256:") > 1


def test_image_runs_as_an_unprivileged_user() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (.*)$", last, re.MULTILINE) == ["65532:65532"]
    assert "RUN" not in last, "the last stage copies, and nothing else"


def test_packages_left_out_of_the_image_are_not_imported() -> None:
    source = "".join(
        path.read_text() for part in ("services", "shared") for path in (ROOT / part).rglob("*.py")
    )
    used = {
        name
        for names in re.findall(r"from cel_expr_python\.ext import (.*)", source)
        for name in re.findall(r"\w+", names)
    }
    left_out = set(re.findall(r"/(ext_\w+)\.\*", DOCKERFILE))
    assert used
    assert left_out
    assert not used & left_out
    clients = re.findall(r"create_client\(\s*\"(\w+)\"", source)
    assert clients
    assert {*clients} <= set(re.findall(r"! -name (\w+)", DOCKERFILE))


@pytest.mark.parametrize(
    ("answer", "healthy"), [("200 OK", True), ("503 Service Unavailable", False), (None, False)]
)
async def test_container_is_healthy_when_its_service_reports_it(
    answer: str | None, healthy: bool
) -> None:
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["quota"]
    kind, *command = service["healthcheck"]["test"]
    assert kind == "CMD"

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readline()).startswith(b"GET /readyz ")
        writer.write(f"HTTP/1.1 {answer}\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(say, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if answer is None:
        server.close()  # Nobody listens there any more.
        await server.wait_closed()
    line = shlex.join(part.replace("$$", "$").replace("8081", str(port)) for part in command)
    asked = await asyncio.create_subprocess_shell(line, stderr=asyncio.subprocess.DEVNULL)
    status = await asyncio.wait_for(asked.wait(), PATIENCE_SECONDS)
    server.close()
    assert (status == 0) is healthy
