"""Who may see what: a table of rights, and what follows from them."""

from collections.abc import Awaitable

import pytest

from services.classifier.projection.policy import DEFAULT_POLICY
from services.console.access.rights import NAMESPACES_MAX, Eyes, Rights, Sees, Touched
from services.console.access.users import User
from services.console.documents import SimulateRequest
from services.console.refusals import Refusal
from services.console.whatif import Change
from tests.unit.console.people import People

PEOPLE = People(
    admin=("list workloads", "list clusterqueues", "get clusterqueues"),
    dana=("list workloads in team", "list clusterqueues", "get clusterqueues"),
    lena=("list workloads in others",),
    queues=("list clusterqueues",),
    viz=("get clusterqueues/pendingworkloads",),
    local=("get localqueues/pendingworkloads in team",),
    bob=(),
)
NAMESPACES = ("team", "others")


def rights(*namespaces: str, people: People = PEOPLE) -> Rights:
    return Rights(people, lambda: namespaces or NAMESPACES)


async def told(asked: Awaitable[Eyes | Sees]) -> str:
    """Of the namespaces those that are seen, `+` if ClusterQueues are, or that it is refused."""
    try:
        answer = await asked
    except Refusal as refusal:
        return str(refusal.code)
    sees, queues = (answer.sees, answer.queues) if isinstance(answer, Eyes) else (answer, False)
    names = [name for name in ("team", "others", "new") if sees(name)]
    return " ".join([*names, *(["+"] if queues else [])])


WHO_SEES = [
    #        everything           team        who waits in a ClusterQueue
    ("admin", "team others new +", "team +", "team others new"),
    ("dana", "team +", "team +", "team"),
    ("lena", "others", "403", "403"),
    ("queues", "+", "403", "403"),
    ("viz", "403", "403", "team others new"),
    ("local", "403", "403", "403"),
    ("bob", "403", "403", "403"),
]


@pytest.mark.parametrize(("name", "everything", "team", "waiting"), WHO_SEES)
async def test_who_sees(name: str, everything: str, team: str, waiting: str) -> None:
    user, here = User(name=name), rights()
    assert await told(here.eyes(user)) == everything
    assert await told(here.eyes(user, "team")) == team
    assert await told(here.waiting_in_cluster_queue(user, "cq")) == waiting


@pytest.mark.parametrize("name", ["admin", "dana", "local"])
async def test_who_may_see_who_waits_in_a_local_queue(name: str) -> None:
    await rights().waiting_in_local_queue(User(name=name), "team", "main")


@pytest.mark.parametrize("name", ["lena", "queues", "viz", "bob"])
async def test_who_may_not_see_who_waits_in_a_local_queue(name: str) -> None:
    with pytest.raises(Refusal, match="in the namespace"):
        await rights().waiting_in_local_queue(User(name=name), "team", "main")


WHO_PLAYS = [
    #                                                   what is seen of the answer
    ("nothing", Touched(), {"admin": "team others new", "dana": "team", "lena": "others"}),
    ("team", Touched(namespaces=frozenset({"team"})), {"admin": "team others new", "dana": "team"}),
    ("a ClusterQueue", Touched(outside="it"), {"admin": "team others new", "dana": "team"}),
    ("all of one name", Touched(everywhere="it"), {"admin": "team others new"}),
]


@pytest.mark.parametrize(("what", "touched", "seen"), WHO_PLAYS)
async def test_who_may_try_out(what: str, touched: Touched, seen: dict[str, str]) -> None:
    for name in ("admin", "dana", "lena", "queues", "viz", "local", "bob"):
        plays = rights().plays(User(name=name), touched)
        assert await told(plays) == seen.get(name, "403"), name


async def test_with_too_many_namespaces_one_has_to_be_named() -> None:
    names = [f"tenant-{number}" for number in range(NAMESPACES_MAX + 1)]
    here, dana = rights(*names, "team"), User(name="dana")
    assert await told(here.sees(dana)) == "400"
    assert await told(here.sees(dana, "team")) == "team"
    touched = Touched(namespaces=frozenset({"team"}))
    assert await told(here.plays(dana, touched)) == "team"
    assert await told(here.sees(User(name="admin"))) == "team others new"


JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}}
QUEUE = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}}
TOUCHES = [
    ({}, Touched()),
    ({"manifests": [JOB]}, Touched(namespaces=frozenset({"default"}))),
    (
        {"manifests": [{**JOB, "metadata": {"name": "x", "namespace": "team"}}]},
        Touched(namespaces=frozenset({"team"})),
    ),
    ({"manifests": [QUEUE]}, Touched(outside="to change ClusterQueue cq")),
    ({"remove": ["clusterqueue/cq"]}, Touched(outside="to remove ClusterQueue cq")),
    ({"remove": ["LocalQueue/team/main"]}, Touched(namespaces=frozenset({"team"}))),
    ({"remove": ["LocalQueue/main"]}, Touched(everywhere="to remove each LocalQueue main")),
    ({"lostSpoke": "east"}, Touched(everywhere="to lose a spoke")),
]


@pytest.mark.parametrize(("question", "touched"), TOUCHES)
def test_what_a_question_is_about(question: dict[str, object], touched: Touched) -> None:
    assert Change(SimulateRequest.model_validate(question), DEFAULT_POLICY).touched == touched
