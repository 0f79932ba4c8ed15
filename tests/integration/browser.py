"""A real browser without a window, driven over its own protocol (Chrome DevTools)."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from shared.testing.waiting import PATIENCE_SECONDS, first_value

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--window-size=1360,900",
)
START_SECONDS = PATIENCE_SECONDS
SETTLED_SECONDS = PATIENCE_SECONDS

Json = dict[str, Any]


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = 0
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self.complaints: list[str] = []
        """What the browser finds wrong: errors in scripts, what it refused to load or run."""

        self.requested: list[str] = []
        """Every URL that the page asked for."""

    async def listen(self) -> None:
        """Take in what the browser says, until it says no more."""
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
                continue
            match told["method"], told["params"]:
                case "Runtime.exceptionThrown", {"exceptionDetails": details}:
                    self.complaints.append(str(details))
                case "Log.entryAdded", {"entry": {"level": "error", "text": text}}:
                    self.complaints.append(text)
                case "Network.requestWillBeSent", {"request": {"url": url}}:
                    self.requested.append(url)
                case _:
                    pass

    def forget(self) -> None:
        """Begin anew, for the next test."""
        self.complaints.clear()
        self.requested.clear()

    async def call(self, method: str, **parameters: Any) -> Json:
        """One command of the protocol."""
        self._numbers += 1
        self._answers[self._numbers] = answer = asyncio.get_running_loop().create_future()
        question = {"id": self._numbers, "method": method, "params": parameters}
        await self._socket.send_json(question)
        async with asyncio.timeout(SETTLED_SECONDS):
            told = await answer
        assert "error" not in told, told
        result: Json = told["result"]
        return result

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression is worth on the page."""
        told = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Its value once that is true."""

        async def true_value() -> Any:
            return await self.value(expression) or None

        try:
            return await first_value(true_value, seconds=SETTLED_SECONDS)
        except TimeoutError:
            shown = await self.value("document.body.innerText")
            raise AssertionError(f"{expression} does not come true of:\n{shown}") from None

    async def text(self, selector: str) -> str:
        """What somebody reads there."""
        return str(await self.value(f"document.querySelector({selector!r}).innerText"))

    async def type(self, text: str) -> None:
        """As if it were typed where the focus is."""
        await self.call("Input.insertText", text=text)

    async def press(self, key: str, code: int) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        for type_ in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=type_, key=key, code=key, windowsVirtualKeyCode=code, **text,
            )  # fmt: skip


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    """A browser with one page that shows nothing yet; its profile is in `folder`."""
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        port = await _port(folder / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            tab = await first_value(partial(_tab, session, port))
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                listening = asyncio.create_task(page.listen())
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await page.call(f"{domain}.enable")
                yield page
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _tab(session: aiohttp.ClientSession, port: int) -> Json | None:
    """Its page, once there is one."""
    async with session.get(f"http://127.0.0.1:{port}/json/list") as response:
        tabs = [each for each in await response.json() if each["type"] == "page"]
    return tabs[0] if tabs else None


async def _port(file: Path) -> int:
    """Where it listens, once it says so."""

    async def written() -> int | None:
        lines = await asyncio.to_thread(_lines, file)
        return int(lines[0]) if len(lines) > 1 else None  # Else it is still written.

    return await first_value(written, f"no port in {file}", seconds=START_SECONDS)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
