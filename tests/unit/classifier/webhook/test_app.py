"""The webhook over real HTTPS: what an API server sees of it."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from services.classifier.app import why_not_ready
from services.classifier.cel import CelEngine
from services.classifier.rules.holder import RulesHolder
from services.classifier.webhook.app import webhook_app
from services.classifier.webhook.review import REVIEW_BYTES_MAX
from services.classifier.webhook.reviewing.reviewer import Reviewer
from shared.contracts.webhook import JOB_PATH, MUTATE_PATH, PIPELINE_RUN_PATH, VALIDATE_PATH
from shared.runtime.certificates import RENEW_DAYS, SERVING_DAYS, CertificateFolder
from shared.runtime.web import WebServer
from shared.testing.waiting import eventually

GOOD = "queueName: q\ncel: {expressions: [\"priority('p')\"]}\n"


def real_now() -> datetime:
    return datetime.now(UTC)


class Service:
    """A webhook that listens, and a client that trusts it."""

    def __init__(self, rules: RulesHolder, folder: CertificateFolder, port: int) -> None:
        self.rules = rules
        self.folder = folder
        self.url = f"https://127.0.0.1:{port}"
        self.tls = ssl.create_default_context(cadata=folder.ca_bundle().decode())
        self.client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self.tls))

    async def review(self, given: dict[str, Any], path: str = MUTATE_PATH) -> dict[str, Any]:
        """Send a review; return the response part of the answer."""
        request = {"uid": "u", "operation": "CREATE", "namespace": "ns", "object": given}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        body = orjson.dumps({**review, "request": request})
        async with self.client.post(self.url + path, data=body) as answer:
            assert answer.status == 200, await answer.text()
            found: dict[str, Any] = (await answer.json())["response"]
            return found

    async def get(self, path: str) -> tuple[int, str]:
        async with self.client.get(self.url + path) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def service(
    path: Path,
    *,
    configuration: str | None = GOOD,
    now: Callable[[], datetime] = real_now,
    reviewer: Reviewer | None = None,
) -> AsyncIterator[Service]:
    rules = RulesHolder(CelEngine())
    if configuration is not None:
        rules.offer(configuration)
    folder = CertificateFolder(path, ["127.0.0.1"])
    server = WebServer(
        webhook_app(rules, reviewer=reviewer),
        host="127.0.0.1",
        port=0,
        certificates=folder,
        now=now,
        follow_seconds=0.02,
    )
    port = await server.start()
    running = Service(rules, folder, port)
    try:
        yield running
    finally:
        await running.client.close()
        await server.stop()


def run() -> dict[str, Any]:
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"name": "p"},
        "spec": {"pipelineRef": {"name": "b"}},
    }


@pytest.mark.parametrize("path", [MUTATE_PATH, PIPELINE_RUN_PATH])
async def test_pipeline_run_is_held_and_classified(tmp_path: Path, path: str) -> None:
    async with service(tmp_path) as webhook:
        found = await webhook.review(run(), path)

    operations = orjson.loads(base64.b64decode(found["patch"]))
    values = {operation["path"]: operation["value"] for operation in operations}
    assert values["/spec/status"] == "PipelineRunPending"
    assert values["/metadata/labels"] == {
        "kueue.x-k8s.io/queue-name": "q",
        "kueue.x-k8s.io/priority-class": "p",
    }


async def test_job_is_suspended_and_wrong_kind_at_its_path_is_denied(tmp_path: Path) -> None:
    queued = {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": queued, "spec": {}}
    async with service(tmp_path) as webhook:
        allowed = await webhook.review(job, JOB_PATH)
        denied = await webhook.review(run(), JOB_PATH)

    assert b"/spec/suspend" in base64.b64decode(allowed["patch"])
    assert denied["status"]["code"] == 400


async def test_nothing_is_admitted_before_a_configuration_is_loaded(tmp_path: Path) -> None:
    async with service(tmp_path, configuration=None) as webhook:
        status, text = await webhook.get("/readyz")
        assert (status, text) == (503, "no configuration is loaded: none was given yet\n")
        async with webhook.client.post(webhook.url + MUTATE_PATH, data=b"{}") as answer:
            assert answer.status == 503

        webhook.rules.offer("queueName: ''")
        assert "queueName: is not set" in (await webhook.get("/readyz"))[1]

        webhook.rules.offer(GOOD)
        assert (await webhook.get("/readyz"))[0] == 200
        assert (await webhook.review(run()))["allowed"]
        assert (await webhook.get("/healthz"))[0] == 200


async def test_good_configuration_applies_to_next_request_and_bad_one_never(
    tmp_path: Path,
) -> None:
    async with service(tmp_path) as webhook:

        async def queue() -> bytes:
            return base64.b64decode((await webhook.review(run()))["patch"])

        webhook.rules.offer(GOOD.replace(": q", ": other"))
        assert b'"other"' in await queue()
        webhook.rules.offer("queueName: third\ncel: {expressions: [nofn()]}")
        assert b'"other"' in await queue()


async def test_body_up_to_limit_is_read_and_larger_one_is_refused(tmp_path: Path) -> None:
    async with service(tmp_path) as webhook:
        url = webhook.url + MUTATE_PATH
        async with webhook.client.post(url, data=BytesIO(b" " * REVIEW_BYTES_MAX)) as answer:
            assert answer.status == 400, "read, and found not to be JSON"
        async with webhook.client.post(url, data=BytesIO(b" " * (REVIEW_BYTES_MAX + 1))) as answer:
            assert answer.status == 413
        assert (await webhook.review(run()))["allowed"]


async def test_update_with_escaped_characters_fits_the_limit(
    tmp_path: Path,
) -> None:
    """A script of as much as etcd keeps, twice, and most of it such as takes six characters."""
    script = {"args": ["<" * 1_400_000]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "ns"},
        "spec": {"template": {"spec": {"containers": [script]}}},
    }
    request = {"uid": "u", "operation": "UPDATE", "object": job, "oldObject": job}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    body = orjson.dumps(review).replace(b"<", rb"\u003c")
    async with service(tmp_path) as webhook:
        url = webhook.url + VALIDATE_PATH
        async with webhook.client.post(url, data=BytesIO(body)) as answer:
            assert answer.status == 200
            assert (await answer.json())["response"]["allowed"] is True


async def test_body_that_is_no_review_gets_message(tmp_path: Path) -> None:
    async with service(tmp_path) as webhook:
        async with webhook.client.post(webhook.url + MUTATE_PATH, data=b"{") as answer:
            assert answer.status == 400
            assert "body: not JSON" in await answer.text()
        assert (await webhook.get("/elsewhere"))[0] == 404


async def test_client_that_does_not_trust_our_authority_fails(tmp_path: Path) -> None:
    async with service(tmp_path) as webhook, aiohttp.ClientSession() as stranger:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await stranger.get(webhook.url + "/healthz")


async def test_certificate_is_renewed_under_load_without_failed_request(tmp_path: Path) -> None:
    # Issued so long ago that it is due for renewal today; until then the clock stands still.
    clock = [real_now() - timedelta(days=SERVING_DAYS - RENEW_DAYS + 1)]
    async with service(tmp_path, now=lambda: clock[0]) as webhook:
        answered: list[int] = []
        stop = asyncio.Event()

        async def ask(*, fresh: bool) -> None:
            connector = aiohttp.TCPConnector(ssl=webhook.tls, force_close=fresh)
            async with aiohttp.ClientSession(connector=connector) as client:
                while not stop.is_set():
                    async with client.get(webhook.url + "/readyz") as answer:
                        answered.append(answer.status)

        before = await serial(webhook)
        async with asyncio.TaskGroup() as group:
            for fresh in (True, True, False):
                group.create_task(ask(fresh=fresh))
            await eventually(lambda: answered)
            clock[0] = real_now()
            await eventually(lambda: renewed(webhook, before))
            asked = len(answered)
            await eventually(lambda: len(answered) > asked)
            stop.set()

    assert asked > 0
    assert set(answered) == {200}


async def renewed(webhook: Service, before: str) -> bool:
    return await serial(webhook) != before


async def serial(webhook: Service) -> str:
    """Of the certificate that a new connection is shown."""
    port = int(webhook.url.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=webhook.tls)
    shown = writer.get_extra_info("ssl_object").getpeercert()
    writer.close()
    await writer.wait_closed()
    return str(shown["serialNumber"])


async def test_service_is_not_ready_before_webhook_listens(tmp_path: Path) -> None:
    rules = RulesHolder(CelEngine())
    server = WebServer(
        webhook_app(rules),
        host="127.0.0.1",
        port=0,
        certificates=CertificateFolder(tmp_path, ["127.0.0.1"]),
        now=real_now,
    )
    assert (why := why_not_ready(rules, server)) is not None
    assert "no rules" in why
    rules.offer(GOOD)
    assert why_not_ready(rules, server) == "the webhook does not listen yet"
    await server.start()
    assert why_not_ready(rules, server) is None
    await server.stop()


async def test_used_port_is_reported(tmp_path: Path) -> None:
    async with service(tmp_path) as webhook:
        second = WebServer(
            webhook_app(webhook.rules),
            host="127.0.0.1",
            port=int(webhook.url.rpartition(":")[2]),
            certificates=webhook.folder,
            now=real_now,
        )
        with pytest.raises(OSError, match="Address already in use"):
            await second.start()
