"""What all users share: one of them leaves some for the others."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from services.console.access.reviews import User
from services.console.access.shares import FairSlots, FairTurns, ShareLimits, share
from services.console.http.handlers import console_app
from services.console.pages.service import PageService
from services.console.query_service import SIMULATION_LIMITS, SIMULATIONS_MAX, QueryService
from services.console.status_error import ConsoleRule, StatusError
from tests.unit.console.people import People
from tests.unit.console.stage import Stage, play
from tests.unit.console.test_http import Handler, ask

LIMITS = ShareLimits(
    most=4,
    of_user=2,
    full=ConsoleRule.STREAMS,
    user_full=ConsoleRule.STREAMS_USER,
    retry_after_seconds=30,
)
FULL, OF_USER = "too many browsers", 'User "mallory" follows changes live on 2 pages already'


@pytest.mark.parametrize(("most", "of_user"), [(1, 1), (2, 2), (8, 3), (30, 3), (200, 20)])
def test_share_is_a_tenth_and_at_least_a_few(most: int, of_user: int) -> None:
    assert share(most) == of_user


@pytest.mark.parametrize(
    ("taken", "user", "refusal"),
    [
        (("mallory", "mallory"), "mallory", OF_USER),
        (("mallory", "mallory"), "alice", None),
        (("mallory", "bob", "bob"), "alice", None),
        (("mallory", "mallory", "bob", "bob"), "alice", FULL),
    ],
)
def test_places_are_limited_for_each_user_and_for_all(
    taken: tuple[str, ...], user: str, refusal: str | None
) -> None:
    places = FairSlots(LIMITS)
    held = [places.place(each) for each in taken]
    for each in held:
        each.__enter__()
    if refusal is None:
        places.place(user).__enter__()
        return
    with pytest.raises(StatusError, match=refusal), places.place(user):
        pass
    held[0].__exit__(None, None, None)
    with places.place(user):
        pass


class Work:
    """Who works, in order; each works until `go` lets one end."""

    def __init__(self, limits: ShareLimits) -> None:
        self.turns = FairTurns(limits)
        self.order: list[str] = []
        self.go = asyncio.Semaphore(0)

    def begin(self, user: str) -> "asyncio.Task[None]":
        return asyncio.create_task(self._work(user))

    async def _work(self, user: str) -> None:
        async with self.turns.turn(user):
            self.order.append(user)
            await self.go.acquire()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def end(*tasks: "asyncio.Task[None]", work: Work) -> None:
    for _ in tasks:
        work.go.release()
    async with asyncio.timeout(30):
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_users_take_turns_however_much_one_asks() -> None:
    work = Work(ShareLimits(most=9, of_user=5, full=ConsoleRule.BUSY,
                            user_full=ConsoleRule.BUSY_USER, retry_after_seconds=5))  # fmt: skip
    tasks = [work.begin(user) for user in ("mallory",) * 4 + ("alice", "alice", "bob")]
    await settle()
    assert work.order == ["mallory"]
    await end(*tasks, work=work)
    assert work.order == ["mallory", "mallory", "alice", "bob", "mallory", "alice", "mallory"]


@pytest.mark.parametrize("gone", [0, 1, 2], ids=["who works", "who is next", "who is last"])
@pytest.mark.parametrize("late", [False, True], ids=["at once", "as the turn ends"])
async def test_turn_of_a_cancelled_request_passes_to_the_next_user(gone: int, late: bool) -> None:
    work = Work(LIMITS)
    tasks = [work.begin(user) for user in ("mallory", "alice", "bob")]
    await settle()
    if late:
        work.go.release()
        await asyncio.sleep(0)
    tasks[gone].cancel()
    await settle()
    await end(*tasks, work=work)
    again = work.begin("mallory")
    await end(again, work=work)
    assert again.exception() is None
    stayed = [task for n, task in enumerate(tasks) if n != gone]
    assert not any(task.cancelled() or task.exception() for task in stayed)


async def test_simulations_of_one_user_leave_places_for_others() -> None:
    people = People(mallory=("list workloads",), alice=("list workloads",))
    queries = QueryService(view=Stage().view, access=people)
    going, loop = asyncio.Event(), asyncio.get_running_loop()
    played: list[str] = []

    def playing(user: str) -> None:
        played.append(user)
        asyncio.run_coroutine_threadsafe(going.wait(), loop).result()

    def begin(user: str) -> "asyncio.Task[None]":
        return asyncio.create_task(queries.play(User(name=user), lambda: playing(user)))

    first = [begin("mallory") for _ in range(SIMULATIONS_MAX)]
    await settle()
    alice = begin("alice")
    await settle()
    going.set()
    answers = await asyncio.gather(*first, alice, return_exceptions=True)
    refusals = [each for each in answers if isinstance(each, StatusError)]
    mine = SIMULATION_LIMITS.of_user
    assert len(refusals) == SIMULATIONS_MAX - mine
    assert {(each.code, str(each)) for each in refusals} == {
        (429, f'User "mallory" has {mine} simulations under way already')
    }
    assert sorted(played) == ["alice", *["mallory"] * mine]


def scene_of_streams(scene: Callable[[Callable[..., Awaitable[Handler]]], Awaitable[None]]) -> None:
    async def run(stage: Stage) -> None:
        await stage.basics()
        await stage.start()
        people = People(mallory=("list workloads",), alice=("list workloads",))
        queries = QueryService(view=stage.view, access=people)
        app = console_app(
            queries,
            PageService(queries=queries, bus=stage.bus),
            streams_max=6,
            streams_per_user=2,
            local_only=False,
        )

        def follow(user: str, *, stays: bool = False) -> Awaitable[Handler]:
            headers = {"authorization": f"Bearer {user}"}
            return ask(app, "/api/v1/events", headers, stays=stays)

        await scene(follow)

    play(run, idle_seconds=600.0)


def test_streams_of_one_user_leave_places_for_others() -> None:
    async def scene(follow: Callable[..., Awaitable[Handler]]) -> None:
        tasks = [asyncio.ensure_future(follow("mallory", stays=True)) for _ in range(6)]
        await asyncio.sleep(1.0)
        refused = [each.result() for each in tasks if each.done()]
        assert [each.code for each in refused] == [429] * 4
        assert refused[0].headers["retry-after"] == "30"
        assert refused[0].message.startswith(OF_USER)
        assert (await follow("alice")).code == 200
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (await follow("mallory")).code == 200

    scene_of_streams(scene)
