"""What is asked of the cluster about somebody, how long its answer holds, and what holds without one."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from typing_extensions import override

from services.console.access.reviews import KubeReviewer, ResourceAttributes, User
from services.console.status_error import StatusError
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.contracts.kube.kinds import Kind, Object
from shared.kube.port import UnavailableError
from shared.testing.world.loop import VirtualLoop
from tests.unit.console.stage import now

ALLOWED_SECONDS, DENIED_SECONDS = 30.0, 5.0
DANA = User(name="dana", uid="7", groups=("team",), extra=(("scopes", ("a", "b")),))
LIST = ResourceAttributes(verb="list", resource="workloads", namespace="team")

Json = dict[str, Any]


class Reviewer(LocalKube):
    """A cluster that knows one token, and lets its owner do what `allows` says."""

    def __init__(self) -> None:
        super().__init__(Api(now=now, random=Random(1)))
        self.token = "of-dana"
        self.allows = True
        self.denied = False
        self.fails: Exception | None = None
        self.answers_after = 0.0
        self.asked: list[Json] = []

    @override
    async def create(self, kind: Kind, obj: Object, **options: Any) -> Object:
        self.asked.append({"kind": kind.kind, **obj["spec"]})
        await asyncio.sleep(self.answers_after)
        if self.fails is not None:
            raise self.fails
        if kind.kind == "TokenReview":
            return {"status": self._identity(obj["spec"]["token"])}
        return {"status": {"allowed": self.allows, "denied": self.denied}}

    def _identity(self, token: str) -> Json:
        if token != self.token:
            return {"authenticated": False, "user": {}}
        extra = {"scopes": ["a", "b"]}
        user = {"username": "dana", "uid": "7", "groups": ["team"], "extra": extra}
        return {"authenticated": True, "user": user}


def play(scene: Callable[[Reviewer, KubeReviewer], Awaitable[None]]) -> None:
    loop = VirtualLoop()

    async def run() -> None:
        kube = Reviewer()
        await scene(
            kube, KubeReviewer(kube, allowed_seconds=ALLOWED_SECONDS, denied_seconds=DENIED_SECONDS)
        )

    try:
        loop.run_until_complete(run())
    finally:
        loop.dispose()


async def code(asked: Awaitable[object]) -> int:
    """With which it is refused; 200: it is not."""
    try:
        await asked
    except StatusError as refusal:
        return refusal.code
    return 200


def test_token_review_names_the_user() -> None:
    async def scene(kube: Reviewer, access: KubeReviewer) -> None:
        assert await access.authenticate("of-dana") == DANA
        assert kube.asked == [{"kind": "TokenReview", "token": "of-dana"}]

    play(scene)


@pytest.mark.parametrize(
    ("token", "reviews"),
    [
        pytest.param(None, 0, id="none"),
        pytest.param("", 0, id="an empty one"),
        pytest.param("x" * 16_385, 0, id="one that is too long to be one"),
        pytest.param("of-nobody", 1, id="one that the cluster does not know"),
    ],
)
def test_missing_or_unknown_token_is_refused(token: str | None, reviews: int) -> None:
    async def scene(kube: Reviewer, access: KubeReviewer) -> None:
        assert await code(access.authenticate(token)) == 401
        assert len(kube.asked) == reviews

    play(scene)


def test_access_review_has_all_of_user_and_attributes() -> None:
    async def scene(kube: Reviewer, access: KubeReviewer) -> None:
        pending = ResourceAttributes(
            verb="get", group="g", resource="r", subresource="s", namespace="n", name="x"
        )
        assert await access.is_allowed(DANA, pending)
        assert await access.is_allowed(
            User(name="bob"), ResourceAttributes(verb="list", resource="workloads")
        )
        assert kube.asked == [
            {
                "kind": "SubjectAccessReview",
                "user": "dana",
                "uid": "7",
                "groups": ["team"],
                "extra": {"scopes": ["a", "b"]},
                "resourceAttributes": {
                    "verb": "get",
                    "group": "g",
                    "resource": "r",
                    "subresource": "s",
                    "namespace": "n",
                    "name": "x",
                },
            },
            {
                "kind": "SubjectAccessReview",
                "user": "bob",
                "uid": "",
                "groups": [],
                "extra": {},
                "resourceAttributes": {
                    "verb": "list",
                    "group": "kueue.x-k8s.io",
                    "resource": "workloads",
                },
            },
        ]

    play(scene)


def test_denied_wins_over_allowed() -> None:
    async def scene(kube: Reviewer, access: KubeReviewer) -> None:
        kube.denied = True
        assert not await access.is_allowed(DANA, LIST)

    play(scene)


@pytest.mark.parametrize(("allows", "seconds"), [(True, ALLOWED_SECONDS), (False, DENIED_SECONDS)])
def test_cached_review_expires(allows: bool, seconds: float) -> None:
    async def scene(kube: Reviewer, access: KubeReviewer) -> None:
        kube.allows = allows
        assert await access.is_allowed(DANA, LIST) is allows
        kube.allows = not allows
        await asyncio.sleep(seconds - 0.1)
        assert await access.is_allowed(DANA, LIST) is allows
        await asyncio.sleep(0.2)
        assert await access.is_allowed(DANA, LIST) is not allows
        assert len(kube.asked) == 2

    play(scene)


def test_expired_token_is_refused_after_the_cache_time() -> None:
    async def scene(kube: Reviewer, access: KubeReviewer) -> None:
        assert await code(access.authenticate("of-dana")) == 200
        kube.token = "another"
        await asyncio.sleep(ALLOWED_SECONDS + 0.1)
        assert await code(access.authenticate("of-dana")) == 401

    play(scene)


def test_concurrent_equal_reviews_share_one_request() -> None:
    async def scene(kube: Reviewer, access: KubeReviewer) -> None:
        kube.answers_after = 1.0
        impatient = asyncio.create_task(access.is_allowed(DANA, LIST))
        others = [asyncio.create_task(access.is_allowed(DANA, LIST)) for _ in range(10)]
        await asyncio.sleep(0.5)
        impatient.cancel()
        assert await asyncio.gather(*others) == [True] * 10
        assert len(kube.asked) == 1

    play(scene)


def test_unanswered_review_refuses_and_is_not_cached() -> None:
    async def scene(kube: Reviewer, access: KubeReviewer) -> None:
        kube.fails = UnavailableError("no", status=500, reason="InternalError")
        assert await code(access.authenticate("of-dana")) == 503
        assert await code(access.is_allowed(DANA, LIST)) == 503
        kube.fails = None
        kube.answers_after = 60.0
        assert await code(access.is_allowed(DANA, LIST)) == 503
        kube.answers_after = 0.0
        assert await access.authenticate("of-dana") == DANA
        assert await access.is_allowed(DANA, LIST)

    play(scene)


def test_cache_holds_no_token() -> None:
    async def scene(kube: Reviewer, access: KubeReviewer) -> None:
        await access.authenticate("of-dana")
        assert "of-dana" not in repr(vars(access._users))

    play(scene)
