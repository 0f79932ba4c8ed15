"""The status of Integration objects, and the rules of the webhook for their kinds."""

from datetime import UTC, datetime
from typing import Any

import jsonpatch

from services.ctl.setup.webhook import webhook_manifest
from services.patcher.cluster.integrations import (
    WEBHOOK,
    integration_status,
    missing_rules,
)
from shared.contracts.kube.kinds import JOB, Kind, Object
from shared.contracts.kube.names import CLASSIFIER_WEBHOOK
from shared.integrations import JOB as IN_FORCE
from shared.integrations import IntegrationState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)
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
    patch = missing_rules(configuration, (JOB, GADGET))
    extended = jsonpatch.apply_patch(configuration, patch)
    [webhook] = [one for one in extended["webhooks"] if one["name"] == WEBHOOK]
    assert webhook["rules"][-1]["resources"] == ["gadgets"]
    asked = [
        (one["name"], rule["operations"])
        for one in extended["webhooks"]
        for rule in one["rules"]
        if rule["resources"] == ["gadgets"]
    ]
    assert asked == [(WEBHOOK, ["CREATE"]), (f"kinds.updates.{WEBHOOK}", ["UPDATE"])]
    assert missing_rules(extended, (JOB, GADGET)) == []
    assert missing_rules({"webhooks": [{"name": "another"}]}, (GADGET,)) == []
