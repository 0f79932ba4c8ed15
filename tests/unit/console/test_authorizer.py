"""Who may see what: a table of rights, and what follows from them."""

from collections.abc import Awaitable

import pytest

from services.classifier.projection.policy import DEFAULT_POLICY
from services.console.access.authorizer import (
    NAMESPACES_MAX,
    Authorizer,
    ChangeScope,
    NamespaceFilter,
    Visibility,
)
from services.console.access.reviews import User
from services.console.documents import SimulateRequest
from services.console.status_error import StatusError
from services.console.whatif import ProposedChange
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


def authorizer(*namespaces: str, people: People = PEOPLE) -> Authorizer:
    return Authorizer(people, lambda: namespaces or NAMESPACES)


async def told(asked: Awaitable[Visibility | NamespaceFilter]) -> str:
    """Of the namespaces those that are seen, `+` if ClusterQueues are, or that it is refused."""
    try:
        answer = await asked
    except StatusError as refusal:
        return str(refusal.code)
    is_visible, queues = (
        (answer.is_visible, answer.cluster_queues)
        if isinstance(answer, Visibility)
        else (answer, False)
    )
    names = [name for name in ("team", "others", "new") if is_visible(name)]
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
async def test_rbac_decides_what_is_visible(
    name: str, everything: str, team: str, waiting: str
) -> None:
    user, here = User(name=name), authorizer()
    assert await told(here.visibility(user)) == everything
    assert await told(here.visibility(user, "team")) == team
    assert await told(here.waiting_in_cluster_queue(user, "cq")) == waiting


@pytest.mark.parametrize("name", ["admin", "dana", "local"])
async def test_user_with_rights_may_see_pending_workloads_of_local_queue(name: str) -> None:
    await authorizer().waiting_in_local_queue(User(name=name), "team", "main")


@pytest.mark.parametrize("name", ["lena", "queues", "viz", "bob"])
async def test_user_without_rights_may_not_see_pending_workloads_of_local_queue(name: str) -> None:
    with pytest.raises(StatusError, match="in the namespace"):
        await authorizer().waiting_in_local_queue(User(name=name), "team", "main")


WHO_PLAYS = [
    #                                                   what is seen of the answer
    ("nothing", ChangeScope(), {"admin": "team others new", "dana": "team", "lena": "others"}),
    (
        "team",
        ChangeScope(namespaces=frozenset({"team"})),
        {"admin": "team others new", "dana": "team"},
    ),
    (
        "a ClusterQueue",
        ChangeScope(cluster_scoped="it"),
        {"admin": "team others new", "dana": "team"},
    ),
    ("all of one name", ChangeScope(all_namespaces="it"), {"admin": "team others new"}),
]


@pytest.mark.parametrize(("what", "scope", "shows"), WHO_PLAYS)
async def test_rights_needed_for_a_simulation(
    what: str, scope: ChangeScope, shows: dict[str, str]
) -> None:
    for name in ("admin", "dana", "lena", "queues", "viz", "local", "bob"):
        authorize_simulation = authorizer().authorize_simulation(User(name=name), scope)
        assert await told(authorize_simulation) == shows.get(name, "403"), name


async def test_too_many_namespaces_require_a_named_one() -> None:
    names = [f"tenant-{number}" for number in range(NAMESPACES_MAX + 1)]
    here, dana = authorizer(*names, "team"), User(name="dana")
    assert await told(here.visible_namespaces(dana)) == "400"
    assert await told(here.visible_namespaces(dana, "team")) == "team"
    scope = ChangeScope(namespaces=frozenset({"team"}))
    assert await told(here.authorize_simulation(dana, scope)) == "team"
    assert await told(here.visible_namespaces(User(name="admin"))) == "team others new"


JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}}
QUEUE = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}}
TOUCHES = [
    ({}, ChangeScope()),
    ({"manifests": [JOB]}, ChangeScope(namespaces=frozenset({"default"}))),
    (
        {"manifests": [{**JOB, "metadata": {"name": "x", "namespace": "team"}}]},
        ChangeScope(namespaces=frozenset({"team"})),
    ),
    ({"manifests": [QUEUE]}, ChangeScope(cluster_scoped="to change ClusterQueue cq")),
    (
        {"quotas": [{"clusterQueue": "cq", "flavor": "f", "resource": "cpu", "nominalQuota": "1"}]},
        ChangeScope(cluster_scoped="to change ClusterQueue cq"),
    ),
    ({"remove": ["clusterqueue/cq"]}, ChangeScope(cluster_scoped="to remove ClusterQueue cq")),
    ({"remove": ["LocalQueue/team/main"]}, ChangeScope(namespaces=frozenset({"team"}))),
    ({"remove": ["LocalQueue/main"]}, ChangeScope(all_namespaces="to remove each LocalQueue main")),
    ({"lostSpoke": "east"}, ChangeScope(all_namespaces="to lose a spoke")),
]


@pytest.mark.parametrize(("question", "scope"), TOUCHES)
def test_scope_of_a_proposed_change(question: dict[str, object], scope: ChangeScope) -> None:
    request = SimulateRequest.model_validate(question)
    assert ProposedChange(request, DEFAULT_POLICY, cluster="hub").scope == scope
