"""The pages of a process's health, while somebody floods them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from shared.runtime import health
from shared.runtime.health import LIMITS, PAGES_PER_SECOND, HealthServer
from shared.testing.waiting import eventually


@pytest.fixture
async def server() -> AsyncIterator[tuple[HealthServer, int]]:
    made = HealthServer(host="127.0.0.1", port=0, ready=lambda: None)
    port = await made.start()
    yield made, port
    await made.stop()


async def get(port: int, path: str, *, source: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(f"GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


async def test_idle_connections_of_one_address_are_few_and_keep_no_probe_out(
    server: tuple[HealthServer, int],
) -> None:
    made, port = server
    assert LIMITS.per_address_max is not None
    idle = [
        await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        for _ in range(3 * LIMITS.per_address_max)
    ]
    assert (await get(port, "/livez")).startswith(b"HTTP/1.1 200")
    assert (await get(port, "/readyz", source="127.0.0.2")).startswith(b"HTTP/1.1 200")

    async def few() -> bool:
        return made.connections <= (LIMITS.per_address_max or 0)

    await eventually(few)
    for _, writer in idle:
        writer.close()


async def test_page_of_metrics_is_made_a_few_times_a_second_however_often_it_is_asked_for(
    server: tuple[HealthServer, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port = server
    made: list[object] = []

    def page(registry: object) -> bytes:
        made.append(registry)
        return b"figures\n"

    async def ask_often() -> None:
        for _ in range(10 * PAGES_PER_SECOND):
            assert (await get(port, "/metrics")).endswith(b"figures\n")

    monkeypatch.setattr(health, "generate_latest", page)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with monkeypatch.context() as clock:
        clock.setattr(loop, "time", lambda: began)
        await ask_often()
        assert len(made) == PAGES_PER_SECOND
        clock.setattr(loop, "time", lambda: began + 1.5)
        await ask_often()
        assert len(made) == 2 * PAGES_PER_SECOND
