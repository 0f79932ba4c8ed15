"""The console answers what its OpenAPI document says, whatever it is asked."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]

from services.console.http.openapi import openapi
from tests.integration.console.questions import BOB, ROOT, Json, event, listening
from tests.integration.console_stage import Place

PATHS = openapi()["paths"]
V1BETA2 = "/apis/visibility.kueue.x-k8s.io/{version}"
EXAMPLES: dict[str, Json] = {
    f"{V1BETA2}/clusterqueues/{{name}}/pendingworkloads": {"version": "v1beta2", "name": "cq"},
    f"{V1BETA2}/namespaces/{{namespace}}/localqueues/{{name}}/pendingworkloads": {
        "version": "v1beta1",
        "namespace": "team",
        "name": "main",
    },
    "/api/v1/queues": {},
    "/api/v1/workloads": {},
    "/api/v1/namespaces/{namespace}/workloads/{name}/explain": {
        "namespace": "team",
        "name": "first",
    },
    "/api/v1/namespaces/{namespace}/workloads/{name}/timeline": {
        "namespace": "team",
        "name": "first",
    },
    "/api/v1/namespaces/{namespace}/workloads/{name}/given": {
        "namespace": "team",
        "name": "first",
    },
    "/api/v1/alerts": {},
    "/api/v1/quota": {},
    "/api/v1/trends": {},
    "/api/v1/clusterqueues/{name}/starts": {"name": "cq"},
    "/api/v1/clusterqueues/{name}/use": {"name": "cq"},
    "/api/v1/flavors": {},
    "/api/v1/spokes": {},
    "/api/v1/machines": {},
    "/api/v1/simulate": {},
    "/api/v1/events": {},
}
"""Every path of the document, with values for its parameters."""

ODD = ("", "0", "-1", "%00", "a%2Fb", "..", "ä", "x" * 3000, "true", "1e9", "{}", "*", "%25", "٣")
ODD_BODIES: list[Any] = [
    b"", b"null", b"[]", b'"x"', b"[" * 5000, b"\xff", b"{}" * 2, {"cluster": 1}, {"manifests": [None]},
    {"manifests": [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": 7}]},
    {"manifests": [{"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue",
                    "metadata": {"name": "x"}, "spec": {"resourceGroups": "none"}}]},
    {"manifests": [{"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue",
                    "metadata": {"name": "x" * 3000}, "spec": {}}]},
    {"remove": ["/"]}, {"remove": ["ClusterQueue//"]}, {"lostSpoke": ""}, {"cluster": "\u0000"},
]  # fmt: skip


def conforms(body: Any, schema: Json) -> None:
    document = json.loads(json.dumps(openapi()))
    jsonschema.validate(body, {**document, **schema}, cls=jsonschema.Draft202012Validator)


def test_every_openapi_path_has_an_example() -> None:
    assert set(EXAMPLES) == set(PATHS)


async def test_every_path_answers_as_the_openapi_document_says(place: Place) -> None:
    assert (await place.ask("/openapi.json")).body == json.loads(json.dumps(openapi()))
    for template, values in EXAMPLES.items():
        [(method, operation)] = PATHS[template].items()
        [(kind, content)] = operation["responses"]["200"]["content"].items()
        path = template.format(**values)
        if kind == "text/event-stream":
            async with listening(place, ROOT) as response:
                conforms(await event(response, "snapshot"), content["schema"])
            continue
        answer = await place.ask(path, ROOT, {} if method == "post" else None)
        assert answer.code == 200, path
        conforms(answer.body, content["schema"])
        refused = await place.ask(path, BOB, {} if method == "post" else None)
        conforms(refused.body, operation["responses"]["default"]["content"][kind]["schema"])


def odd_paths() -> Iterator[str]:
    """Every parameter of every path with odd values, one at a time."""
    for template, values in EXAMPLES.items():
        [operation] = PATHS[template].values()
        for parameter in operation.get("parameters", ()):
            for odd in ODD if template != "/api/v1/events" else ():
                if parameter["in"] == "query":
                    yield f"{template.format(**values)}?{parameter['name']}={odd}"
                else:
                    yield template.format(**{**values, parameter["name"]: odd})


async def test_random_requests_get_documented_answers(
    place: Place,
) -> None:
    status = {"$ref": "#/components/schemas/Status"}
    asked: list[tuple[str, Any]] = [(path, None) for path in odd_paths()]
    asked += [("/api/v1/simulate", body) for body in ODD_BODIES]
    assert len(asked) > 200
    for path, body in asked:
        answer = await place.ask(path, ROOT, body)
        assert answer.code in {200, 400, 404, 405, 422}, (path, body, answer.body)
        if answer.code != 200:
            conforms(answer.body, status)
