"""Which streams the provisioner reads: decisions of quota only where something asks for hosts."""

import pytest

from services.provisioner.store import Store
from services.provisioner.wire import to_released
from shared.contracts.controllers import MACHINES
from shared.contracts.kube.kinds import ADMISSION_CHECK, TASK_RUN, Kind, Object
from shared.contracts.messages.hosts import HostState, PlatformState
from shared.testing.builders import NOON, observed_object
from tests.unit.provisioner.harness import done, task_run

CHECK = {"metadata": {"name": "machines"}, "spec": {"controllerName": MACHINES}}
FOREIGN = {"metadata": {"name": "budget"}, "spec": {"controllerName": "example.com/budget"}}
REQUEST = task_run("build", "linux/arm64")


@pytest.mark.parametrize(
    ("kind", "obj", "needed"),
    [
        pytest.param(ADMISSION_CHECK, CHECK, True, id="a check that the provisioner answers"),
        pytest.param(ADMISSION_CHECK, FOREIGN, False, id="a check of another controller"),
        pytest.param(TASK_RUN, REQUEST, True, id="a TaskRun that asks for a host"),
        pytest.param(TASK_RUN, done(REQUEST), False, id="a TaskRun that has ended"),
    ],
)
def test_runs_and_decisions_of_quota_are_needed_only_where_hosts_are_requested(
    kind: Kind, obj: Object, needed: bool
) -> None:
    store = Store(cluster="hub", host_config=("system", "hosts"), providers=frozenset())
    assert not store.needs_runs
    store.apply_observed(observed_object(kind, obj))
    assert store.needs_runs is needed


def test_runs_are_needed_while_a_task_run_gives_its_host_back_or_has() -> None:
    store = Store(cluster="hub", host_config=("system", "hosts"), providers=frozenset())
    state = HostState(
        cluster="hub", namespace="team-a", name="build", uid="uid", platform="linux/arm64",
        state="ready", at=NOON,
    )  # fmt: skip
    store.apply_host_state(state, 1)
    assert store.needs_runs
    store.apply_host_state(to_released(state, returned=True, now=NOON), 2)
    assert not store.needs_runs
    record = PlatformState(
        cluster="hub", platform="linux/arm64", returned={"uid": "team-a:run"}, at=NOON
    )
    store.apply_platform_state(record, 3)
    assert store.needs_runs, "a run has no quota for what it gave back"
