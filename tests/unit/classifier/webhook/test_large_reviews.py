"""Large reviews are answered by a process of their own, as they would be answered in the webhook."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest
import yaml
from prometheus_client import REGISTRY

from services.classifier.cel import CelEngine
from services.classifier.evaluation.budget import Budget
from services.classifier.evaluation.frames import Frame
from services.classifier.evaluation.pool import HEAVY_WAITING_MAX, EvaluationPool
from services.classifier.rules import parse_rules
from services.classifier.webhook.context import NamespaceContext
from services.classifier.webhook.review import Outcome, Reply
from services.classifier.webhook.reviewing.large import integrations_of, setups_of
from services.classifier.webhook.reviewing.reviewer import (
    LIGHT_BYTES_MAX,
    LIGHT_ITEMS_MAX,
    LIGHT_TOKENS_MAX,
    Reviewer,
)
from services.classifier.webhook.reviewing.within_budget import WithinBudget
from shared.contracts.kube.kinds import JOB, PIPELINE_RUN
from shared.contracts.kube.names import QUEUE, USER_PENDING
from shared.integrations import Integrations
from shared.integrations.document import parse
from shared.integrations.registry import documents, opted
from shared.testing.waiting import PATIENCE_SECONDS
from tests.unit.classifier.webhook.objects import job, run
from tests.unit.classifier.webhook.reviews import RULES, review
from tests.unit.integrations.gadgets import document, gadget

Json = dict[str, Any]
NAMESPACE = "far"
CONTEXT = NamespaceContext(
    default_queue="main",
    manage_without_queue=True,
    default_priority_class={"main": "low"}.get,  # type: ignore[arg-type]
    uses_multikueue={"main"}.__contains__,
    is_admitted={"admitted"}.__contains__,
    is_admitted_as=lambda uid, kind: (uid, kind) == ("admitted", "JobSet"),
    has_admitted={"TrainJob"}.__contains__,
    knows_decisions=True,
    patchers=frozenset({"patcher"}),
    request_editors=frozenset({"editors"}),
)
FAILING = parse_rules(
    "queueName: q\ncel: {expressions: [\"label('a', pipelineRun.nope)\"]}", CelEngine()
)
LIST = "pipelineRun.spec.params[0].value"
WIDE = "pipelineRun.metadata.annotations.wide"
COSTLY = {
    "cpu": f"{LIST}.map(x, {LIST}.filter(y, {WIDE}.contains(x + y + 'z'))).size() > 9 ? [] : [priority('p')]",
    "memory": f"annotation('a', string(size(replace({WIDE}, 'a', {WIDE}))))",
}
"""What costs a copy or a search of a tenant's string, and counts as one step of a loop."""


def trace() -> str:
    return "00-11111111111111111111111111111111-2222222222222222-01"


def large(obj: Json) -> Json:
    """The object with an annotation that makes it large."""
    metadata = obj["metadata"]
    annotations = {**metadata.get("annotations", {}), "padding": "x" * LIGHT_BYTES_MAX}
    return {**obj, "metadata": {**metadata, "annotations": annotations}}


def changed(old: Json, new: Json, user: str = "jane", *groups: str) -> Json:
    user_info = {"username": user, "groups": groups}
    return {
        "object": new,
        "oldObject": old,
        "operation": "UPDATE",
        "userInfo": user_info,
    }


QUEUED = {"labels": {QUEUE: "main"}}
BELOW = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "name": "o",
    "controller": True,
}
WAITS = {**job(uid="u", **QUEUED), "spec": {"suspend": True, "template": {"spec": {}}}}
STARTS = {**WAITS, "spec": {**WAITS["spec"], "suspend": False}}
ASKS = {USER_PENDING: "false", "kueue.konflux-ci.dev/requests-a": "1"}
RUN_WAITS = run(uid="u", annotations=ASKS, **QUEUED)
RUN_WAITS["spec"]["status"] = "PipelineRunPending"
RUN_ASKS_MORE = {
    **RUN_WAITS,
    "metadata": {
        **RUN_WAITS["metadata"],
        "annotations": {
            **RUN_WAITS["metadata"]["annotations"],
            "kueue.konflux-ci.dev/requests-a": "2",
        },
    },
}
WORKLOAD = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Workload",
    "metadata": {"name": "w", "namespace": NAMESPACE},
    "spec": {"podSets": "wrong"},
}
REVIEWS: dict[str, Json] = {
    "a run of the namespace's default queue, which leads to other clusters": {"object": run()},
    "a run in a dry run": {"object": run(), "dryRun": True},
    "a Job of that queue": {"object": job()},
    "a Job below an admitted JobSet": {
        "object": job(ownerReferences=[{**BELOW, "uid": "admitted"}], **QUEUED)
    },
    "a Job below a JobSet that may be below an admitted TrainJob": {
        "object": job(ownerReferences=[{**BELOW, "uid": "other"}], **QUEUED)
    },
    "an object of a kind of the cluster": {
        "object": {**gadget(), "metadata": {"name": "one", **QUEUED}}
    },
    "a Job that somebody starts": changed(WAITS, STARTS),
    "a Job that the patcher starts": changed(WAITS, STARTS, "patcher"),
    "a Job that is admitted and started": changed(
        {**WAITS, "metadata": {**WAITS["metadata"], "uid": "admitted"}},
        {**STARTS, "metadata": {**STARTS["metadata"], "uid": "admitted"}},
    ),
    "a run that asks for more while it waits": changed(RUN_WAITS, RUN_ASKS_MORE),
    "a run for which an editor asks for more": changed(RUN_WAITS, RUN_ASKS_MORE, "j", "editors"),
    "a run that nobody can read": {"object": {**run(), "spec": "wrong"}},
    "a Workload": {"object": WORKLOAD},
    "a Workload of an older version": {
        "object": {**WORKLOAD, "apiVersion": "kueue.x-k8s.io/v1beta1"}
    },
    "a deletion": {"object": None, "oldObject": run(), "operation": "DELETE"},
    "an object with more levels than there may be": {
        "object": {**run(), "spec": orjson.loads('{"a":' * 130 + "1" + "}" * 130)}
    },
    "an object with more values than there may be": {
        "object": {**run(), "spec": {"a": [1] * 30_000}}
    },
}


def in_namespace(fields: Json) -> bytes:
    made = {
        part: large(obj) if part in {"object", "oldObject"} and obj else obj
        for part, obj in fields.items()
    }
    return review(made.pop("object"), namespace=NAMESPACE, **made)


@pytest.fixture(scope="module")
def here() -> WithinBudget:
    integrations = Integrations()
    integrations.apply(document())
    context = replace(CONTEXT, integrations=integrations)

    def of(namespace: str) -> NamespaceContext:
        return context if namespace == NAMESPACE else NamespaceContext(managed=False)

    return WithinBudget(budget=Budget(values_max=20_000), new_traceparent=trace, context_of=of)


@asynccontextmanager
async def reviewer(here: WithinBudget, **options: Any) -> AsyncIterator[Reviewer]:
    pool = EvaluationPool(**{"wait_seconds": PATIENCE_SECONDS, **options})
    pool.start()
    try:
        yield Reviewer(here=here, pool=pool)
    finally:
        await pool.close()


def counted(result: str, of: str = "cel_evaluations") -> float:
    return REGISTRY.get_sample_value(f"tekton_kueue_{of}_total", {"result": result}) or 0.0


def cut_off() -> float:
    labels = {"lane": "light", "cause": "cpu"}
    return REGISTRY.get_sample_value("sluicegate_webhook_cut_off_total", labels) or 0.0


def comparable(reply: Reply) -> Reply:
    """The reply without the parts of its request that nobody logs."""
    request = reply.request or {}
    return replace(
        reply, request={name: request.get(name) for name in ("uid", "namespace", "name")}
    )


async def test_large_review_is_answered_as_a_small_one(here: WithinBudget) -> None:
    async with reviewer(here) as apart:
        for named, fields in REVIEWS.items():
            body = in_namespace(fields)
            for rules, kind in (
                (RULES, None),
                (FAILING, None),
                (RULES, JOB),
                (RULES, PIPELINE_RUN),
            ):
                wanted = here.mutate(body, rules, kind)
                assert comparable(await apart.mutate(body, rules, kind)) == comparable(wanted), (
                    named
                )
            wanted = here.validate(body)
            assert comparable(await apart.validate(body)) == comparable(wanted), named


async def test_child_gets_new_rules_and_added_and_removed_kinds() -> None:
    integrations = Integrations()
    context = NamespaceContext(integrations=integrations)
    of_gadgets = in_namespace({"object": {**gadget(), "metadata": {"name": "one", **QUEUED}}})
    of_run = in_namespace({"object": run()})
    async with reviewer(WithinBudget(context_of=lambda _namespace: context)) as apart:
        assert (await apart.mutate(of_gadgets, RULES, None)).outcome is Outcome.UNCHANGED
        integrations.apply(document())
        assert (await apart.mutate(of_gadgets, RULES, None)).outcome is Outcome.MUTATED
        integrations.replace_all(())
        assert (await apart.mutate(of_gadgets, RULES, None)).outcome is Outcome.UNCHANGED
        assert (await apart.mutate(of_run, RULES, None)).outcome is Outcome.MUTATED
        assert (await apart.mutate(of_run, FAILING, None)).outcome is Outcome.FAILED


DOCUMENTS = {
    **{obj["metadata"]["name"]: obj for _, text in documents() for obj, _ in parse(text)},
    **{obj["metadata"]["name"]: obj for _, text in opted() for obj, _ in parse(text)},
    "with a field that is taken away": document(carry=[{"op": "remove", "path": "/spec/x"}]),
}


@pytest.mark.parametrize("named", DOCUMENTS)
def test_document_in_force_reaches_the_reviewing_child(named: str) -> None:
    integrations = Integrations()
    integrations.apply(DOCUMENTS[named])
    here = WithinBudget(context_of=lambda _namespace: NamespaceContext(integrations=integrations))
    written = orjson.loads(orjson.dumps(setups_of(here, RULES, "ns")["integrations"].head()))
    [there] = integrations_of(Frame(written)).in_force()
    assert there.document == integrations.in_force()[0].document


def test_document_that_the_reviewing_child_refuses_is_an_error() -> None:
    """Else its objects would pass as those of a kind that nobody knows."""
    refused = document(carry=[{"op": "remove", "path": "/spec/x", "value": None}])
    with pytest.raises(ValueError, match="were in force are refused"):
        integrations_of(Frame({"documents": [refused]}))


async def test_what_is_evaluated_there_is_counted_here(here: WithinBudget) -> None:
    body = in_namespace({"object": run()})
    async with reviewer(here) as apart:
        before = counted("success"), counted("failure"), counted("success", "cel_mutations")
        for rules in (RULES, FAILING, RULES):
            await apart.mutate(body, rules, None)
        after = counted("success"), counted("failure"), counted("success", "cel_mutations")
    assert tuple(b - a for a, b in zip(before, after, strict=True)) == (2, 1, 2)


async def test_object_on_which_our_code_fails_there_is_refused_with_the_place(
    here: WithinBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reviewer(here) as apart:
        monkeypatch.setattr(Budget, "__eq__", lambda *_: False)
        wrong = replace(here, budget=Budget(levels_max="many"))  # type: ignore[arg-type]
        reply = await Reviewer(here=wrong, pool=apart.pool).mutate(
            in_namespace({"object": run()}), RULES, None
        )
    assert "cannot be read: TypeError: " in reply.message
    assert reply.failure is not None
    assert reply.failure.place.startswith("TypeError /")
    assert "check_object" in reply.failure.trace


LARGE: dict[str, Json] = {
    "bytes": {"spec": {"pipelineRef": {"name": "x" * LIGHT_BYTES_MAX}}},
    "commas": {"spec": {"pipelineRef": {"name": "," * (LIGHT_TOKENS_MAX + 1)}}},
    "items": {"spec": {"params": [{"name": "p", "value": ["x"] * (LIGHT_ITEMS_MAX + 1)}]}},
}


@pytest.mark.parametrize("by", LARGE)
@pytest.mark.parametrize("way", ["mutate", "validate"])
async def test_review_that_is_large_by(by: str, way: str, here: WithinBudget) -> None:
    """It is not read in the event loop."""
    body = review({**run(), **LARGE[by]}, namespace="closed")
    async with reviewer(here) as apart:
        assert apart.pool is not None
        await apart.pool.close()
        asked = apart.mutate(body, RULES, None) if way == "mutate" else apart.validate(body)
        if (by, way) == ("items", "mutate"):
            assert (await asked).outcome is Outcome.UNCHANGED, "nothing is evaluated there"
            asked = apart.mutate(
                review({**run(), **LARGE[by]}, namespace=NAMESPACE), RULES, PIPELINE_RUN
            )
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asked, 0.05)


LIMITS: dict[str, tuple[Json, int, str]] = {
    "cpu": ({"cpu_seconds": 0.3}, 400_000, "more than 0.3 s of CPU"),
    "memory": ({"cpu_seconds": 8, "memory_bytes": 64 * 2**20}, 30_000, "bytes of memory"),
}


@pytest.mark.parametrize("limit", LIMITS)
async def test_review_that_costs_too_much_is_cut_off_and_the_next_is_answered(limit: str) -> None:
    limits, chars, says = LIMITS[limit]
    obj = run(annotations={"wide": "a" * chars})
    obj["spec"]["params"] = [{"name": "p", "value": ["a" * 40] * 90}]
    rules = parse_rules(
        yaml.safe_dump({"queueName": "q", "cel": {"expressions": [COSTLY[limit]]}}), CelEngine()
    )
    async with reviewer(WithinBudget(), **limits) as apart:
        reply = await apart.mutate(in_namespace({"object": obj}), rules, None)
        after = await apart.mutate(in_namespace({"object": run()}), RULES, None)
    assert says in reply.message
    assert (reply.cause, reply.request) == (limit, {"uid": "u-1", "namespace": NAMESPACE})
    assert after.outcome is Outcome.MUTATED


@pytest.mark.parametrize("mib", [8, 20, 28])
async def test_review_that_takes_too_much_memory_to_read_is_not_called_unreadable(mib: int) -> None:
    """A reader of JSON needs many times its bytes, and says so in different ways."""
    body = b'{"request":[' + b"[]," * 300_000 + b"1]}"
    wide = Budget(values_max=2**30)
    async with reviewer(WithinBudget(budget=wide), memory_bytes=mib * 2**20) as apart:
        reply = await apart.validate(body)
    assert (reply.cause, "bytes of memory" in reply.message) == ("memory", True)


async def test_expressions_that_the_light_lane_cuts_off_run_in_the_heavy_lane(
    here: WithinBudget,
) -> None:
    obj = run(annotations={"wide": "a" * 10_000})
    obj["spec"]["params"] = [{"name": "p", "value": ["a" * 40] * 90}]
    rules = parse_rules(
        yaml.safe_dump({"queueName": "q", "cel": {"expressions": [COSTLY["cpu"]]}}), CelEngine()
    )
    body = review(obj, namespace=NAMESPACE)
    assert len(body) < LIGHT_BYTES_MAX
    async with reviewer(here, cpu_seconds=8) as apart:
        before = cut_off()
        for _ in range(2):
            assert (await apart.mutate(body, rules, None)).outcome is Outcome.MUTATED
        assert cut_off() == before + 1, "its namespace stays there"


async def test_namespaces_take_turns_and_none_fills_the_lane() -> None:
    async with reviewer(WithinBudget(), bytes_waiting_max=2**30) as apart:
        done: list[str] = []

        async def ask(namespace: str) -> None:
            reply = await apart.mutate(
                review(large(run()), namespace=namespace), RULES, PIPELINE_RUN
            )
            done.append(reply.cause or namespace)

        flood = [asyncio.create_task(ask("greedy")) for _ in range(HEAVY_WAITING_MAX + 9)]
        await asyncio.sleep(0)
        await asyncio.gather(ask("honest"), *flood)
    assert done.count("busy") >= 8
    # Those of the greedy one waited before; the honest one waited for one of them at most.
    assert done[: done.index("honest")].count("greedy") <= 2


async def test_bytes_of_one_namespace_that_wait_are_bounded() -> None:
    async with reviewer(WithinBudget(), bytes_waiting_max=16 * LIGHT_BYTES_MAX) as apart:
        asked = [apart.validate(in_namespace({"object": WORKLOAD})) for _ in range(12)]
        replies = await asyncio.gather(*asked)
    refused = [reply.message for reply in replies if reply.cause == "busy"]
    assert refused
    assert f"{8 * LIGHT_BYTES_MAX} bytes may" in refused[0]
