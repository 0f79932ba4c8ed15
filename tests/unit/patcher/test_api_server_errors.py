"""Errors of the API server: what the patcher retries, what it reports, and that it writes only once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.simulator.local import LocalKube
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.kube.port import (
    ConflictError,
    KubeError,
    NotFoundError,
    Patch,
    RefusedError,
    ThrottledError,
    UnavailableError,
)
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import Setup, projected

Write = tuple[str, str, str]
"""Verb, kind, subresource."""


class FaultyKube(LocalKube):
    """Answers writes to one kind with the errors that it was given, one after the other."""

    def __init__(self, inner: LocalKube) -> None:
        super().__init__(inner._api)  # The same cluster, as another client has it.
        self.writes: list[Write] = []
        self.answers: dict[Write, list[KubeError]] = {}
        self.succeeds_anyway = False

    async def create(self, kind: Kind, obj: Object) -> Object:
        return await self._answer(
            ("create", kind.kind, ""), lambda: LocalKube.create(self, kind, obj)
        )

    async def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Patch,
        *,
        subresource: str | None = None,
    ) -> Object:
        return await self._answer(
            ("patch", kind.kind, subresource or ""),
            lambda: LocalKube.patch(self, kind, namespace, name, patch, subresource=subresource),
        )

    async def _answer(self, write: Write, do: Callable[[], Any]) -> Object:
        self.writes.append(write)
        errors = self.answers.get(write)
        if errors:
            if self.succeeds_anyway:
                await do()
            raise errors.pop(0)
        result: Object = await do()
        return result


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    subject = Setup()
    subject.patchers_kube = FaultyKube(subject.kube)
    await subject.bus.start()
    await subject.start_patcher()
    await subject.flavor()
    yield subject
    await subject.kill_patcher()
    await subject.bus.stop()


def faulty(setup: Setup) -> FaultyKube:
    assert isinstance(setup.patchers_kube, FaultyKube)
    return setup.patchers_kube


async def released(setup: Setup) -> bool:
    return not (await setup.job())["spec"]["suspend"]


STATUS = ("patch", "Workload", "status")
RELEASE = ("patch", "Job", "")
CREATE = ("create", "Workload", "")

PASSING = {
    "a conflict is read and written again": ConflictError("changed", status=409),
    "too many requests wait as long as they were told": ThrottledError(
        "not so fast", retry_after_seconds=0.3
    ),
    "a server error is tried again": UnavailableError("etcd", status=500),
    "a missing permission is an operator's to mend": RefusedError(
        'jobs.batch "train" is forbidden: User "p" cannot patch resource "jobs"', status=403
    ),
    "credentials that ran out are renewed": RefusedError("Unauthorized", status=401),
}


@pytest.mark.parametrize("write", [CREATE, STATUS, RELEASE], ids=["create", "status", "release"])
@pytest.mark.parametrize("answer", PASSING.values(), ids=PASSING.keys())
async def test_transient_error_is_retried_until_the_write_succeeds(
    setup: Setup, answer: KubeError, write: Write
) -> None:
    if write == CREATE and isinstance(answer, ConflictError):
        pytest.skip("a create conflicts only with what is there")
    faulty(setup).answers[write] = [answer, answer]
    began = asyncio.get_running_loop().time()
    state = await setup.submit()
    await setup.decide(state, "admitted")
    await eventually(lambda: released(setup))
    assert (await setup.conditions(state))["Admitted"] == "True"
    assert not faulty(setup).answers[write]
    if isinstance(answer, ThrottledError):
        assert asyncio.get_running_loop().time() - began >= answer.retry_after_seconds
    assert not any(outcome.result == "refused" for outcome in await setup.outcomes())


@pytest.mark.parametrize("write", [CREATE, STATUS, RELEASE], ids=["create", "status", "release"])
async def test_lost_answer_causes_no_second_write(setup: Setup, write: Write) -> None:
    faulty(setup).succeeds_anyway = True
    faulty(setup).answers[write] = [UnavailableError("connection reset")]
    state = await setup.submit()
    await setup.decide(state, "admitted")
    await eventually(lambda: released(setup))
    await asyncio.sleep(0.5)
    before = (await setup.job())["metadata"]["resourceVersion"]
    await setup.bus.publish(state)
    await asyncio.sleep(0.3)
    assert (await setup.job())["metadata"]["resourceVersion"] == before
    assert (await setup.conditions(state))["Admitted"] == "True"


async def test_refused_release_gives_quota_back_with_the_reason(
    setup: Setup,
) -> None:
    text = 'admission webhook "validation.webhook.pipeline.tekton.dev" denied the request: no tasks'
    faulty(setup).answers[RELEASE] = [RefusedError(text, status=400)]
    state = await setup.submit()
    await setup.decide(state, "admitted")

    async def told() -> bool:
        return any(o.result == "refused" for o in await setup.outcomes())

    await eventually(told)
    [outcome] = await setup.outcomes()
    assert (outcome.action, outcome.result) == ("release", "refused")
    assert "no tasks" in outcome.message
    assert (await setup.job())["spec"]["suspend"] is True

    async def news() -> bool:
        about = {kind for kind, reason, _ in await setup.events() if reason == "ReleaseRefused"}
        return about == {"Job", "Workload"}

    await eventually(news)


async def test_refused_status_releases_no_job(setup: Setup) -> None:
    faulty(setup).answers[STATUS] = [RefusedError("status.admission: Invalid value", status=422)]
    state = await setup.submit()
    await setup.decide(state, "admitted")

    async def told() -> bool:
        return any(o.result == "refused" for o in await setup.outcomes())

    await eventually(told)
    assert (await setup.job())["spec"]["suspend"] is True


async def test_refused_workload_object_gives_quota_back(setup: Setup) -> None:
    """Too large for etcd, or against somebody's policy: nothing is released without a record."""
    refusal = RefusedError("etcdserver: request is too large", status=500)
    faulty(setup).answers[CREATE] = [refusal] * 9
    state = await setup.submit()
    await setup.decide(state, "admitted")

    async def told() -> bool:
        return [(o.action, o.result) for o in await setup.outcomes()] == [("release", "refused")]

    await eventually(told)
    assert "too large" in (await setup.outcomes())[0].message
    assert (await setup.job())["spec"]["suspend"] is True

    async def news() -> bool:
        return ("Job", "ErrWorkloadCompose") in {one[:2] for one in await setup.events()}

    await eventually(news)


@pytest.mark.parametrize(
    ("on_eviction", "action"), [("suspend", "release"), ("recreate", "hold"), ("run-on", "hold")]
)
async def test_refused_workload_object_takes_no_quota_from_what_runs_on(
    setup: Setup, on_eviction: str, action: str
) -> None:
    """Its user deleted the Workload of a run, and wrote requests into it that the API server refuses."""
    faulty(setup).answers[CREATE] = [RefusedError("requests[tasks]: Invalid value", status=422)] * 9
    await setup.submit(suspend=False)
    state = projected(await setup.job(), on_eviction=on_eviction, pods_active=True)
    await setup.bus.publish(state)
    await setup.decide(state, "admitted")

    async def told() -> bool:
        return bool(await setup.outcomes())

    await eventually(told)
    assert {(o.action, o.result) for o in await setup.outcomes()} == {(action, "refused")}


async def test_job_deleted_before_its_release_is_no_error(setup: Setup) -> None:
    faulty(setup).answers[RELEASE] = [NotFoundError("gone", status=404)]
    state = await setup.submit()
    await setup.decide(state, "admitted")

    async def admitted() -> bool:
        return (await setup.conditions(state)).get("Admitted") == "True"

    await eventually(admitted)
    await asyncio.sleep(0.2)
    assert await setup.outcomes() == []


async def test_workload_deleted_before_its_status_write_is_no_error(setup: Setup) -> None:
    faulty(setup).answers[STATUS] = [NotFoundError("gone", status=404)]
    with capture_logs() as said:
        state = await setup.submit()
        await setup.decide(state, "admitted")
        await eventually(lambda: released(setup))
    assert [line for line in said if line["log_level"] == "error"] == []


async def test_admission_writes_workload_and_job_once_each(
    setup: Setup,
) -> None:
    setup_writes = faulty(setup).writes
    state = await setup.submit()
    await setup.decide(state, "admitted")
    await eventually(lambda: released(setup))
    await setup.observe(kinds.WORKLOAD, await setup.workload(state) or {})
    await setup.bus.publish(state.model_copy(update={"held": False, "version": "9"}))
    await asyncio.sleep(0.3)
    written = [write for write in setup_writes if write[1] in {"Workload", "Job"}]
    assert written == [CREATE, STATUS, RELEASE]
