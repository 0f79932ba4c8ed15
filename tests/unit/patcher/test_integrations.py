"""The status of Integration objects, and the rules of the webhook for their kinds."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import jsonpatch
import pytest

from services.ctl.setup.webhook import webhook_manifest
from services.patcher.cluster.integrations import integration_status
from services.patcher.cluster.webhook_rules import rules_patch
from services.simulator.local import LocalKube
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import INTEGRATION, JOB, MUTATING_WEBHOOK, Kind, Object
from shared.contracts.kube.names import CLASSIFIER_WEBHOOK
from shared.contracts.webhook import CREATIONS
from shared.integrations import JOB as IN_FORCE
from shared.integrations import IntegrationState
from shared.testing.builders import observed_object
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import Setup

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)
GIZMO = Kind(group="example.com", version="v1", plural="gizmos", kind="Gizmo")
GADGET = Kind(group="example.com", version="v1", plural="gadgets", kind="Gadget")


def standing(problem: str | None, status: Object | None = None, **more: Any) -> IntegrationState:
    obj = {"metadata": {"name": "x", "uid": "u", "generation": 2}, "spec": {"a": 1}}
    return IntegrationState(
        obj={**obj, "status": status or {}}, problem=problem, in_force=None, **more
    )


def test_valid_integration_is_active_and_kept_as_accepted() -> None:
    status = integration_status(standing(None), now=NOW)
    assert status is not None
    assert status["accepted"] == {"a": 1}
    assert status["conditions"][0]["status"] == "True"
    assert integration_status(standing(None, status), now=LATER) is None, "it is said once"


def test_invalid_integration_shows_the_problem_and_keeps_the_accepted_one() -> None:
    good = integration_status(standing(None), now=NOW)
    status = integration_status(standing("spec.ready: no", good), now=LATER)
    assert status is not None
    assert "accepted" not in status, "what is there stays"
    [condition] = status["conditions"]
    assert (condition["status"], condition["message"]) == ("False", "spec.ready: no")
    obj = standing("spec.ready: no").obj
    kept = integration_status(IntegrationState(obj=obj, problem="no", in_force=IN_FORCE), now=NOW)
    assert kept is not None
    assert kept["conditions"][0]["message"] == "no; the one before is in force"


def test_missing_rule_of_a_kind_is_added_once() -> None:
    configuration = webhook_manifest(url="https://x", authority=b"ca").object
    assert configuration["metadata"]["name"] == CLASSIFIER_WEBHOOK
    extended = jsonpatch.apply_patch(configuration, rules_patch(configuration, (JOB, GADGET)))
    assert rules_of("gadgets", extended) == [
        (CREATIONS, ["CREATE"]),
        (f"kinds.updates.{CREATIONS}", ["UPDATE"]),
    ]
    assert rules_patch(extended, (JOB, GADGET)) == []
    assert rules_patch({"webhooks": [{"name": "another"}]}, (GADGET,)) == []


def rules_of(plural: str, configuration: Object) -> list[tuple[str, list[str]]]:
    """Webhook and operations of each rule for a kind alone."""
    return [
        (one["name"], rule["operations"])
        for one in configuration["webhooks"]
        for rule in one["rules"]
        if rule["resources"] == [plural]
    ]


def test_rules_of_a_kind_that_is_gone_are_removed_and_no_others() -> None:
    configuration = webhook_manifest(url="https://x", authority=b"ca").object
    by_hand = {"apiGroups": ["x"], "apiVersions": ["v1"], "operations": ["CREATE"]}
    configuration["webhooks"][0]["rules"].append({**by_hand, "resources": ["widgets"]})
    both = (JOB, GADGET, GIZMO)
    extended = jsonpatch.apply_patch(configuration, rules_patch(configuration, both))
    for webhook in extended["webhooks"]:
        for rule in webhook["rules"]:
            rule["scope"] = "*"  # As an API server fills it in.
    left = jsonpatch.apply_patch(extended, rules_patch(extended, (JOB, GIZMO)))
    assert not rules_of("gadgets", left)
    assert rules_of("gizmos", left) == rules_of("gizmos", extended)
    last = jsonpatch.apply_patch(left, rules_patch(left, ()))
    assert not rules_of("gizmos", last)
    assert rules_of("widgets", last) == rules_of("widgets", configuration)
    assert len(rules_of("jobs", last)) == len(rules_of("jobs", configuration))
    assert rules_patch(last, ()) == []


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    setup = Setup()
    await setup.bus.start()
    configuration = webhook_manifest(url="https://x", authority=b"ca").object
    await setup.kube.create(MUTATING_WEBHOOK, configuration)
    await setup.start_patcher()
    yield setup
    await setup.kill_patcher()


class Racing(LocalKube):
    """A cluster in which somebody notes something in the configuration just after it was read."""

    noted = False

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body:
        found = await super().get(kind, namespace, name)
        if kind == MUTATING_WEBHOOK and not self.noted:
            self.noted = True
            note = {"metadata": {"annotations": {"by": "somebody"}}}
            await self.patch(kind, namespace, name, note)
        return found


async def test_what_others_write_into_the_configuration_meanwhile_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.patcher.cluster.integrations.RESYNC_SECONDS", 0.05)
    setup = Setup()
    setup.patchers_kube = Racing(setup.api)
    await setup.bus.start()
    configuration = webhook_manifest(url="https://x", authority=b"ca").object
    await setup.kube.create(MUTATING_WEBHOOK, configuration)
    await setup.start_patcher()
    await setup.observe(INTEGRATION, await setup.kube.create(INTEGRATION, document(GADGET)))
    await eventually(partial(reviews, setup, "gadgets"))
    found = await setup.kube.get(MUTATING_WEBHOOK, None, CLASSIFIER_WEBHOOK)
    assert found["metadata"]["annotations"]["by"] == "somebody"
    await setup.kill_patcher()


def document(kind: Kind, **more: Any) -> Object:
    of = {"group": kind.group, "version": kind.version, "kind": kind.kind, "plural": kind.plural}
    spec = {"kind": of, "podSets": [{"template": "spec.template", "count": "1"}]}
    metadata = {"name": f"{kind.plural}.{kind.group}", **more}
    return {
        "apiVersion": INTEGRATION.api_version, "kind": "Integration", "metadata": metadata, "spec": spec,
    }  # fmt: skip


async def reviews(setup: Setup, plural: str) -> bool:
    found = await setup.kube.get(MUTATING_WEBHOOK, None, CLASSIFIER_WEBHOOK)
    return bool(rules_of(plural, found))


async def test_rules_follow_what_the_api_server_has_and_not_what_is_observed(setup: Setup) -> None:
    """The watcher, or who has its key, says of one that exists and of two that do not."""
    for kind in (GIZMO, JOB):
        forged = document(kind, uid="u", resourceVersion="1", generation=1)
        await setup.observe(INTEGRATION, forged)
    real = await setup.kube.create(INTEGRATION, document(GADGET))
    await setup.observe(INTEGRATION, real)
    await eventually(partial(reviews, setup, "gadgets"))
    assert not await reviews(setup, "gizmos")
    assert setup.patcher is not None
    integrations = setup.patcher.cache.integrations
    assert integrations.find(group=GIZMO.group, plural="gizmos") is None
    assert integrations.find(group="batch", plural="jobs") == IN_FORCE
    assert integrations.find(group=GADGET.group, plural="gadgets") is not None
    await setup.kube.delete(INTEGRATION, None, real["metadata"]["name"])
    await setup.bus.publish(observed_object(INTEGRATION, real, deleted=True))

    async def are_gone() -> bool:
        return not await reviews(setup, "gadgets")

    await eventually(are_gone)
