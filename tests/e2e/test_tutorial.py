"""The tutorials do what they show: their files are written, their commands run, their output compared."""

import asyncio
import os
import re
import shlex
import shutil
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.ctl.manifests import load_documents
from shared.contracts.kinds import Kind, Object
from shared.kube.client import HttpKube
from shared.kube.config import from_kubeconfig

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorial"
START_SECONDS = 90
COMMAND_SECONDS = 90
SLUICE = (sys.executable, "-m", "services.ctl.main")


@dataclass(slots=True)
class Command:
    line: str
    shown: list[str] = field(default_factory=list)
    """What the page says that it prints; `…` stands for anything."""


@dataclass(slots=True)
class Page:
    files: dict[str, str] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)


def read(path: Path) -> Page:
    page, lines = Page(), iter(path.read_text().splitlines())
    name = ""
    for line in lines:
        if found := re.fullmatch(r"`([a-z-]+\.yaml)`:", line):
            name = found[1]
        elif line == "```yaml":
            page.files[name] = "\n".join(_block(lines)) + "\n"
        elif line == "```console":
            for text in _block(lines):
                if text.startswith("$ "):
                    page.commands.append(Command(text[2:]))
                else:
                    page.commands[-1].shown.append(text)
    return page


def _block(lines: Any) -> list[str]:
    found = []
    for line in lines:
        if line == "```":
            break
        found.append(line)
    return found


class Shell:
    """Runs what a reader would type, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = dict(os.environ)
        self._running: list[asyncio.subprocess.Process] = []

    async def run(self, command: str) -> list[str]:
        name, *arguments = shlex.split(command)
        if name == "export":
            key, _, value = arguments[0].partition("=")
            self._environment[key] = value
            return []
        if name == "sluice" and arguments[0] == "dev":
            await self._start(arguments)
            return []
        if name == "sluice":
            return await self._output(*SLUICE, *arguments)
        assert name == "kubectl", command
        if (kubectl := shutil.which("kubectl")) is not None:
            return await self._output(kubectl, *arguments)
        return await Kubectl(self._folder / self._environment["KUBECONFIG"]).run(
            self._folder, arguments
        )

    async def _start(self, arguments: list[str]) -> None:
        process = await self._process(*SLUICE, *arguments)
        self._running.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            async for line in process.stdout:
                if b"ready; Ctrl-C stops everything" in line:
                    return
        raise AssertionError("sluice dev ended")

    async def _output(self, *command: str) -> list[str]:
        process = await self._process(*command)
        async with asyncio.timeout(COMMAND_SECONDS):
            output, _ = await process.communicate()
        return output.decode().splitlines()

    async def _process(self, *command: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command,
            cwd=self._folder,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def close(self) -> None:
        for process in self._running:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                await process.wait()


class Kubectl:
    """As much of kubectl as the tutorials use, for where it is not installed."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    async def run(self, folder: Path, arguments: list[str]) -> list[str]:
        options = [a for a in arguments if a.startswith("--")]
        namespace = arguments[arguments.index("-n") + 1] if "-n" in arguments else None
        kube = HttpKube(from_kubeconfig(str(self._kubeconfig)))
        try:
            match arguments[0]:
                case "apply":
                    file = folder / arguments[arguments.index("-f") + 1]
                    return [await self._apply(kube, obj) for _, obj in load_documents(file)]
                case "wait":
                    wanted = next(o for o in options if o.startswith("--for="))[6:]
                    what = [a for a in arguments if not a.startswith("-") and a != namespace][1]
                    return await self._wait(kube, what, namespace, wanted)
                case _:
                    after = arguments.index("-n") + 2
                    plural, name = arguments[after : after + 2]
                    kind = await self._kind(kube, plural)
                    patch = yaml.safe_load(arguments[arguments.index("-p") + 1])
                    await kube.patch(kind, namespace, name, patch, subresource="status")
                    return [f"{plural}.{kind.group}/{name} patched"]
        finally:
            await kube.close()

    async def _apply(self, kube: HttpKube, obj: Object) -> str:
        group = obj["apiVersion"].rpartition("/")[0]
        kind = await self._kind(kube, obj["kind"].lower())
        await kube.create(kind, obj)
        return f"{obj['kind'].lower()}.{group}/{obj['metadata']['name']} created"

    async def _wait(
        self, kube: HttpKube, what: str, namespace: str | None, wanted: str
    ) -> list[str]:
        singular, _, name = what.partition("/")
        kind = await self._kind(kube, singular)
        how, _, value = wanted.partition("=")
        while True:
            items = (await kube.list(kind, namespace=namespace)).items
            found = [i for i in items if not name or i["metadata"]["name"] == name]
            if found and all(_is_so(item, how, value) for item in found):
                names = (item["metadata"]["name"] for item in found)
                return [f"{singular}.{kind.group}/{one} condition met" for one in names]
            await asyncio.sleep(0.2)

    async def _kind(self, kube: HttpKube, word: str) -> Kind:
        for group, version, plural in sorted(await kube.served(), reverse=True):
            if plural in {word, f"{word}s"}:
                return Kind(
                    group=group,
                    version=version,
                    plural=plural,
                    kind=word.capitalize(),
                    namespaced=word in {"gadget", "workload"},
                )
        raise AssertionError(f"{word} is not served")


def _is_so(item: Object, how: str, value: str) -> bool:
    if how == "condition":
        conditions = (item.get("status") or {}).get("conditions") or []
        return any(c["type"] == value and c["status"] == "True" for c in conditions)
    path, _, wanted = value.partition("=")
    for step in path.strip("{}").strip(".").split("."):
        item = (item or {}).get(step)  # type: ignore[assignment]
    return str(item).lower() == wanted


def matches(shown: str, printed: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), printed) is not None


@pytest.mark.timeout(400)
@pytest.mark.parametrize("path", sorted(TUTORIALS.glob("*.md")), ids=lambda path: path.stem)
async def test_a_tutorial_does_what_it_shows(path: Path, tmp_path: Path) -> None:
    page, shell = read(path), Shell(tmp_path)
    for name, text in page.files.items():
        (tmp_path / name).write_text(text)
    try:
        for command in page.commands:
            printed = await shell.run(command.line)
            told = "\n".join([f"$ {command.line}", *printed])
            assert len(printed) == len(command.shown), told
            for shown, line in zip(command.shown, printed, strict=True):
                assert matches(shown, line), told
    finally:
        await shell.close()
