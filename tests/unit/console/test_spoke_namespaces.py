"""What spokes say of namespaces takes nobody's overview away, and asks the API server for little."""

from typing import Any

import pytest
from typing_extensions import override

from services.console import query_service
from services.console.access import authorizer
from services.console.access.reviews import ResourceAttributes, User
from services.console.query_service import QueryService
from services.console.status_error import StatusError
from shared.contracts.kube import kinds
from shared.contracts.messages.observed import Observed
from shared.testing.builders import observed_object
from tests.unit.console.people import People
from tests.unit.console.stage import Stage, play, workload

MAX = 20
MANY = MAX + 1


@pytest.fixture(autouse=True)
def _fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (authorizer, query_service):
        monkeypatch.setattr(module, "NAMESPACES_MAX", MAX)


class CountingPeople(People):
    asked = 0

    @override
    async def is_allowed(self, user: User, attributes: ResourceAttributes) -> bool:
        self.asked += 1
        return await super().is_allowed(user, attributes)


def of_spoke(namespace: str) -> Observed:
    metadata = {"namespace": namespace, "name": "main", "uid": f"of-{namespace}"}
    obj = {"metadata": metadata, "spec": {"clusterQueue": "cq"}}
    return observed_object(kinds.LOCAL_QUEUE, obj, cluster="east")


async def say(stage: Stage, *, invented: int = 0, of_hub: int = 0, at_hub: int = 0) -> None:
    """A spoke has LocalQueues in so many namespaces of its own, and of the hub's; the hub in others."""
    made = [f"made-{number}" for number in range(invented)]
    known = [f"known-{number}" for number in range(of_hub)]
    own = [f"own-{number}" for number in range(at_hub)]
    await stage.say(
        *(stage.observed(kinds.NAMESPACE, name, {}) for name in known),
        *(of_spoke(name) for name in ("team", *made, *known)),
        *(stage.local_queue(name) for name in own),
    )


SAID: list[Any] = [
    pytest.param({}, 2, id="nothing"),
    pytest.param({"invented": MANY}, 2, id="that it has many that the hub has not"),
    pytest.param({"of_hub": 5}, 7, id="that it has queues in a few of the hub's"),
    pytest.param({"of_hub": MANY}, MAX, id="that it has queues in many of the hub's"),
    pytest.param({"of_hub": MANY, "at_hub": MAX - 2}, MAX, id="in too many"),
]


@pytest.mark.parametrize(("said", "namespaces"), SAID)
def test_what_a_spoke_says_leaves_users_their_overview(
    said: dict[str, int], namespaces: int
) -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.start()
        people = CountingPeople(dana=("list workloads in team",))
        queries = QueryService(view=stage.view, access=people)
        dana = await queries.authenticate("dana")
        await say(stage, **said)
        await stage.say(workload("here"), workload("there", cluster="east"))
        people.asked = 0
        items = (await queries.queues(dana)).items
        # Whether it sees ClusterQueues, all namespaces, and each that there is.
        assert people.asked == 2 + namespaces
        told = {(each.cluster, each.namespace) for each in items}
        assert told == {("hub", "team"), ("east", "team")}
        assert len((await queries.workloads(dana)).items) == 2

    play(scene)


def test_too_many_namespaces_of_the_hub_require_a_named_one() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.start()
        queries = QueryService(view=stage.view, access=People(dana=("list workloads in team",)))
        dana = await queries.authenticate("dana")
        await say(stage, at_hub=MAX)
        with pytest.raises(StatusError, match="name one"):
            await queries.queues(dana)
        assert len((await queries.queues(dana, "team")).items) == 2

    play(scene)


def test_namespace_that_only_a_spoke_has_is_shown_to_who_sees_all_or_names_it() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.start()
        rights = ("list workloads in team", "list workloads in made-0")
        access = People(dana=rights, admin=("list workloads",))
        queries = QueryService(view=stage.view, access=access)
        dana, admin = [await queries.authenticate(name) for name in ("dana", "admin")]
        await say(stage, invented=1)
        assert "made-0" not in {each.namespace for each in (await queries.queues(dana)).items}
        for answer in (await queries.queues(dana, "made-0"), await queries.queues(admin)):
            assert "made-0" in {each.namespace for each in answer.items}

    play(scene)


def test_namespace_that_is_deleted_at_the_hub_is_asked_about_no_more() -> None:
    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.start()
        assert await stage.view.wait_until_read(5.0)
        await say(stage, of_hub=1)
        assert stage.view.namespaces("hub") == (["others", "team"], ["known-0"])
        await stage.say(stage.observed(kinds.NAMESPACE, "known-0", {}, deleted=True))
        assert stage.view.namespaces("hub") == (["others", "team"], [])

    play(scene)
