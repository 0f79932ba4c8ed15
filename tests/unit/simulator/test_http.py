"""The API over HTTP, seen by a plain client."""

import socket
import ssl
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import trustme

from services.simulator.app import Simulator
from services.simulator.cluster.errors import ApiError
from tests.unit.simulator.builders import config_map, job, pipeline_run
from tests.unit.simulator.http_client import MAPS, Client, event_of

JOBS = "/apis/batch/v1/namespaces/default/jobs"


RUNS = "/apis/tekton.dev/v1/namespaces/default/pipelineruns"


MERGE = "application/merge-patch+json"


JSON_PATCH = "application/json-patch+json"


STRATEGIC = "application/strategic-merge-patch+json"


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def test_object_from_creation_to_deletion(client: Client) -> None:
    created = await client.send("POST", MAPS, config_map())
    read = await client.send("GET", f"{MAPS}/a")
    patched = await client.send("PATCH", f"{MAPS}/a", {"data": {"k": None, "l": "1"}}, type_=MERGE)
    body = {**patched.body, "data": {"m": "2"}}
    replaced = await client.send("PUT", f"{MAPS}/a", body)
    deleted = await client.send("DELETE", f"{MAPS}/a")
    missing = await client.send("GET", f"{MAPS}/a")

    assert created.code == 201
    assert read.body == created.body
    assert patched.body["data"] == {"l": "1"}
    assert replaced.body["data"] == {"m": "2"}
    assert deleted.body["status"] == "Success"
    assert deleted.body["details"]["uid"] == created.body["metadata"]["uid"]
    assert (missing.code, missing.body["reason"]) == (404, "NotFound")
    assert missing.body["kind"] == "Status"
    assert missing.body["details"] == {"name": "a", "kind": "configmaps"}


@dataclass(frozen=True, kw_only=True)
class Bad:
    path: str
    code: int
    method: str = "GET"
    body: Any = None
    type_: str = "application/json"
    says: str = ""


NO_RESOURCE = "the server could not find the requested resource"


BAD = {
    "a path that is nothing": Bad(path="/nowhere", code=404, says=NO_RESOURCE),
    "a group that is not served": Bad(path="/apis/x.io/v1/things", code=404, says=NO_RESOURCE),
    "a version that is not served": Bad(path="/apis/batch/v2/jobs", code=404, says=NO_RESOURCE),
    "a name without its namespace": Bad(path="/api/v1/configmaps/a", code=404),
    "a namespace for a cluster-wide kind": Bad(
        path="/apis/kueue.x-k8s.io/v1beta2/namespaces/x/clusterqueues", code=404
    ),
    "a status of a kind without the subresource": Bad(path=f"{MAPS}/a/status", code=404),
    "a creation without a namespace": Bad(
        path="/api/v1/configmaps", method="POST", body=config_map(), code=405
    ),
    "a verb that is none": Bad(path=f"{MAPS}/a", method="POST", body={}, code=405),
    "a body that is no JSON": Bad(path=MAPS, method="POST", body=b"{", code=400),
    "a body that is no object": Bad(path=MAPS, method="POST", body=[], code=400),
    "a body in another language": Bad(
        path=MAPS,
        method="POST",
        body=b"x",
        type_="text/plain",
        code=415,
        says="the body of the request was in an unknown format",
    ),
    "a body beyond 3 MiB": Bad(path=MAPS, method="POST", body=b"x" * 3_200_000, code=413),
    "a patch in another language": Bad(
        path=f"{MAPS}/a", method="PATCH", body={}, type_="application/apply-patch+yaml", code=415
    ),
    "a strategic patch of a custom resource": Bad(
        path=f"{RUNS}/p", method="PATCH", body={}, type_=STRATEGIC, code=415
    ),
    "a JSON patch that is an object": Bad(
        path=f"{MAPS}/a", method="PATCH", body={}, type_=JSON_PATCH, code=400
    ),
    "a JSON patch whose test fails": Bad(
        path=f"{MAPS}/a",
        method="PATCH",
        body=[{"op": "test", "path": "/data/k", "value": "w"}],
        type_=JSON_PATCH,
        code=422,
        says="the server rejected our request due to an error in our request",
    ),
    "a limit that is no number": Bad(path=f"{MAPS}?limit=x", code=400),
    "a selector on an unsupported field": Bad(
        path=f"{MAPS}?fieldSelector=data.k%3Dv", code=400, says="field label not supported: data.k"
    ),
    "a token that leads nowhere": Bad(path=f"{MAPS}?continue=x", code=400),
    "a watch from no version": Bad(path=f"{MAPS}?watch=1&resourceVersion=x", code=400),
    "a dry run that is none": Bad(
        path=f"{MAPS}?dryRun=Some", method="POST", body=config_map("b"), code=400
    ),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
async def test_bad_request_gets_status_and_message(client: Client, case: Bad) -> None:
    await client.send("POST", MAPS, config_map())
    await client.send("POST", RUNS, pipeline_run())

    answer = await client.send(case.method, case.path, case.body, type_=case.type_)

    assert answer.code == answer.body["code"] == case.code
    assert answer.body["status"] == "Failure"
    assert case.says in answer.body["message"]


async def test_items_of_built_in_lists_have_no_kind_and_version(client: Client) -> None:
    await client.send("POST", MAPS, config_map())
    await client.send("POST", RUNS, pipeline_run())

    maps = (await client.send("GET", "/api/v1/configmaps")).body
    runs = (await client.send("GET", RUNS)).body

    assert maps["kind"] == "ConfigMapList"
    assert "kind" not in maps["items"][0]
    assert maps["items"][0]["data"] == {"k": "v"}
    assert runs["items"][0]["kind"] == "PipelineRun"


async def test_lists_come_in_pages(client: Client) -> None:
    for number in range(5):
        await client.send("POST", MAPS, config_map(f"a{number}"))

    names, token = [], ""
    for _ in range(3):
        page = (await client.send("GET", f"{MAPS}?limit=2&continue={token}")).body
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")

    assert names == [f"a{number}" for number in range(5)]
    assert token == ""


async def test_lists_are_selected(client: Client) -> None:
    await client.send("POST", MAPS, config_map("a", labels={"x": "1"}))
    await client.send("POST", MAPS, config_map("b"))

    for query in ("labelSelector=x%3D1", "fieldSelector=metadata.name%3Da"):
        found = (await client.send("GET", f"{MAPS}?{query}")).body["items"]
        assert [item["metadata"]["name"] for item in found] == ["a"]


async def test_both_versions_are_served(client: Client) -> None:
    body = {"metadata": {"name": "q"}, "spec": {"cohort": "c"}}
    await client.send("POST", "/apis/kueue.x-k8s.io/v1beta1/clusterqueues", body)

    new = (await client.send("GET", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q")).body
    old = (await client.send("GET", "/apis/kueue.x-k8s.io/v1beta1/clusterqueues")).body

    assert new["spec"] == {"cohortName": "c"}
    assert old["items"][0]["spec"] == {"cohort": "c"}
    assert old["items"][0]["apiVersion"] == old["apiVersion"] == "kueue.x-k8s.io/v1beta1"


async def test_tables_have_the_kinds_columns(client: Client) -> None:
    body = {"metadata": {"name": "q"}, "spec": {"cohortName": "c"}}
    path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
    await client.send("POST", path, body)

    made = (await client.send("GET", path, accept=TABLE)).body

    assert made["kind"] == "Table"
    shown = [column["name"] for column in made["columnDefinitions"] if not column["priority"]]
    assert shown == ["Name", "Cohort", "Pending Workloads"]
    assert made["rows"][0]["cells"][:2] == ["q", "c"]
    assert made["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


async def test_partial_metadata_is_returned_on_request(client: Client) -> None:
    await client.send("POST", MAPS, config_map())
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

    listed = (await client.send("GET", MAPS, accept=accept)).body

    assert listed["kind"] == "PartialObjectMetadataList"
    assert listed["items"][0].keys() == {"apiVersion", "kind", "metadata"}


async def test_collection_can_be_deleted_by_selector(client: Client) -> None:
    for name, value in (("a", "1"), ("b", "2")):
        await client.send("POST", MAPS, config_map(name, labels={"x": value}))

    await client.send("DELETE", f"{MAPS}?labelSelector=x%3D1")

    left = (await client.send("GET", MAPS)).body["items"]
    assert [item["metadata"]["name"] for item in left] == ["b"]


async def test_strategic_patches_reach_into_lists_of_built_in_kinds(client: Client) -> None:
    await client.send("POST", JOBS, job(suspend=True))

    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"suspend": False}}
    answer = await client.send("PATCH", f"{JOBS}/j", patch, type_=STRATEGIC)

    assert answer.code == 200
    assert answer.body["spec"]["suspend"] is False


async def test_yaml_is_understood(client: Client) -> None:
    body = b"metadata:\n  name: y\ndata:\n  k: v\n"

    assert (await client.send("POST", MAPS, body, type_="application/yaml")).code == 201


async def test_discovery_names_every_kind(client: Client) -> None:
    groups = (await client.send("GET", "/apis")).body["groups"]
    kueue = (await client.send("GET", "/apis/kueue.x-k8s.io/v1beta1")).body["resources"]

    assert {"batch", "tekton.dev", "kueue.x-k8s.io"} <= {group["name"] for group in groups}
    queues = next(entry for entry in kueue if entry["name"] == "clusterqueues")
    assert queues["shortNames"] == ["cq"]
    assert "clusterqueues/status" in {entry["name"] for entry in kueue}
    for path in ("/healthz", "/readyz", "/livez", "/version", "/api", "/openapi/v2", "/openapi/v3"):
        assert (await client.send("GET", path)).code == 200


async def test_names_are_unescaped_once(client: Client) -> None:
    answer = await client.send("GET", f"{MAPS}/%252e")

    assert answer.body["message"] == 'configmaps "%2e" not found'


async def test_restarted_simulator_serves_its_objects(client: Client) -> None:
    created = await client.send("POST", MAPS, config_map())
    url = client.simulator.url
    async with aclosing(client.watch(f"{MAPS}?watch=1")) as lines:
        assert event_of(await anext(lines)) == ("ADDED", "a")

        await client.simulator.restart(forget_events=True)

        assert [line async for line in lines] == [], "the watch ended"
    assert client.simulator.url == url
    assert (await client.send("GET", f"{MAPS}/a")).body == created.body
    resumed = await client.lines(f"{MAPS}?watch=1&resourceVersion=1")
    assert resumed == [("ERROR", "")]


async def test_simulator_with_a_certificate_serves_tls(tmp_path: Any) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    simulator = Simulator(behaviour=False, certificate=certificate, key=key)
    await simulator.start()
    try:
        trust = ssl.create_default_context()
        authority.configure_trust(trust)
        connector = aiohttp.TCPConnector(ssl=trust)
        async with aiohttp.ClientSession(connector=connector) as session:
            assert simulator.url.startswith("https://")
            assert (await Client(simulator, session).send("GET", "/version")).code == 200
    finally:
        await simulator.stop()


async def test_responses_are_sent_without_delay_by_nagle(client: Client) -> None:
    """With Nagle's algorithm each answer waits 40 ms for the client's delayed acknowledgement."""
    await client.send("GET", MAPS)
    serving: Any = client.simulator._server._server
    [connection] = serving.server_state.connections
    accepted = connection.transport.get_extra_info("socket")

    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_requested_faults_are_injected(client: Client) -> None:
    def busy(method: str, path: str) -> ApiError | None:
        if method != "POST":
            return None
        return ApiError(429, "TooManyRequests", f"not now: {path}", retry_after_seconds=7)

    client.simulator.application.fault = busy

    refused = await client.send("POST", MAPS, config_map())

    assert (refused.code, refused.body["reason"]) == (429, "TooManyRequests")
    assert refused.body["details"]["retryAfterSeconds"] == 7
    assert refused.headers["Retry-After"] == "7"
    assert (await client.send("GET", MAPS)).code == 200
