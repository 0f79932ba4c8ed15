"""Server-side field validation, bad quantities, and the columns of pods and nodes."""

from typing import Any

import pytest

from tests.unit.simulator.builders import job
from tests.unit.simulator.http_client import Client

QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def queue(**quota: Any) -> dict[str, Any]:
    resources = [{"name": "cpu", **quota}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}
    return {"metadata": {"name": "q"}, "spec": {"resourceGroups": [group]}}


def job_with(*, spec: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x", **container}]}
    return {"metadata": {"name": "j"}, "spec": {"template": {"spec": pod}, **(spec or {})}}


CONTAINER = "spec.template.spec.containers[0]"

UNKNOWN: dict[str, tuple[str, dict[str, Any], str]] = {
    "a typo deep in a queue": (
        QUEUES,
        queue(nominalQuotas=3),
        "spec.resourceGroups[0].flavors[0].resources[0].nominalQuotas",
    ),
    "a field of the wrong level": (QUEUES, {**queue(), "cohortName": "c"}, "cohortName"),
    "a typo in a Job": (JOBS, job_with(spec={"paralelism": 2}), "spec.paralelism"),
    "a typo in a container": (JOBS, job_with(resource={}), f"{CONTAINER}.resource"),
    "a typo in resources": (
        JOBS,
        job_with(resources={"request": {"cpu": "1"}}),
        f"{CONTAINER}.resources.request",
    ),
}


@pytest.mark.parametrize(("path", "body", "field"), UNKNOWN.values(), ids=list(UNKNOWN))
async def test_unknown_field_is_refused_or_warned_of_as_asked(
    client: Client, path: str, body: dict[str, Any], field: str
) -> None:
    refused = await client.send("POST", f"{path}?fieldValidation=Strict", body)
    warned = await client.send("POST", path, body)

    assert (refused.code, refused.body["reason"]) == (400, "BadRequest")
    assert refused.body["message"].endswith(f'strict decoding error: unknown field "{field}"')
    assert warned.code == 201
    assert warned.headers["Warning"] == f'299 - "unknown field \\"{field}\\""'


async def test_patch_is_validated_and_known_fields_pass(client: Client) -> None:
    strict = "fieldValidation=Strict"
    whole = {**queue(nominalQuota="3"), "kind": "ClusterQueue"}
    created = await client.send("POST", f"{QUEUES}?{strict}", whole)
    fine = await client.send(
        "PATCH", f"{QUEUES}/q?{strict}", {"spec": {"cohortName": "c"}}, type_=MERGE
    )
    typo = await client.send(
        "PATCH", f"{QUEUES}/q?{strict}", {"spec": {"cohorts": "c"}}, type_=MERGE
    )
    odd = await client.send("POST", f"{QUEUES}?fieldValidation=Loose", queue())

    assert (created.code, fine.code, typo.code, odd.code) == (201, 200, 400, 400)
    assert created.headers.get("Warning") is None


async def test_known_job_passes_strict_validation(client: Client) -> None:
    assert (await client.send("POST", f"{JOBS}?fieldValidation=Strict", job())).code == 201


@pytest.mark.parametrize("text", ["1 cpu", "2GB", "one"])
async def test_quantity_that_is_none_is_refused(client: Client, text: str) -> None:
    body = job_with(resources={"requests": {"cpu": text}})

    refused = await client.send("POST", JOBS, body)

    assert (refused.code, refused.body["reason"]) == (400, "BadRequest")
    assert "quantities must match the regular expression" in refused.body["message"]
    assert repr(text) in refused.body["message"]


SHOWN: dict[str, tuple[str, dict[str, Any], list[str], list[str]]] = {
    "pods": (
        "/api/v1/namespaces/default/pods",
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
        ["Name", "Ready", "Status", "Restarts", "Age"],
        ["p", "0/1", "Pending", "0"],
    ),
    "nodes": (
        "/api/v1/nodes",
        {
            "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": ""}},
            "spec": {"unschedulable": True},
        },
        ["Name", "Status", "Roles", "Age", "Version"],
        ["n", "NotReady,SchedulingDisabled", "worker"],
    ),
}


@pytest.mark.parametrize(("path", "body", "columns", "cells"), SHOWN.values(), ids=list(SHOWN))
async def test_pods_and_nodes_have_kubectls_columns(
    client: Client, path: str, body: dict[str, Any], columns: list[str], cells: list[str]
) -> None:
    await client.send("POST", path, body)

    made = (await client.send("GET", path, accept=TABLE)).body

    shown = [column["name"] for column in made["columnDefinitions"] if not column["priority"]]
    assert shown == columns
    assert made["rows"][0]["cells"][: len(cells)] == cells
