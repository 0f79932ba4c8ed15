"""Secrets leave no program: what must go from a text, what must stay, and who asks for it."""

import json
import logging

import pytest
import structlog

from shared.runtime.service import Hosted, Parts, Program, Service
from shared.settings.base import ServiceSettings
from shared.telemetry.logging import configure_logging
from shared.telemetry.redaction import REDACTED as R
from shared.telemetry.redaction import redacted
from tests.unit.runtime.test_host import Idle

SEED = "SUA" + "B" * 55
URL = "nats://joe:hidden@127.0.0.1:9"
TOKEN = "eyJhbGciOi.eyJzdWIi.c2ln"
PEM = "-----BEGIN {0}PRIVATE KEY{1}-----\nMIIE/9+a=\n-----END {0}PRIVATE KEY{1}-----"

GOES = {
    "seed of NATS": (f"seed {SEED} read", f"seed {R} read"),
    "private key": (f"a\n{PEM.format('EC ', '')}\nb", f"a\n{R}\nb"),
    "private key of PGP": (PEM.format("PGP ", " BLOCK"), R),
    "private key in a JSON string": (json.dumps({"a": PEM.format("", "")}), f'{{"a": "{R}"}}'),
    "private key without its end": ("-----BEGIN PRIVATE KEY-----\nabc", R),
    "private key without its beginning": ("abc\nde=\n-----END RSA PRIVATE KEY-----\nb", f"{R}\nb"),
    "key in a kubeconfig": ("client-key-data: bm8=\nserver: a", f"client-key-data: {R}\nserver: a"),
    "key in base64 without its name": ("x LS0tLS1CRUdJTiBSU0EgUFJJVg== y", f"x {R} y"),
    "token of Kubernetes": (f"token {TOKEN} sent", f"token {R} sent"),
    "token of OpenShift": ("logged in by sha256~abc-d_e", f"logged in by {R}"),
    "token of GitHub": ("clone with ghp_0123456789abcdef", f"clone with {R}"),
    "header": ("Authorization: Bearer abc123", f"Authorization: Bearer {R}"),
    "header with a name and password": ("authorization: Basic YTpi", f"authorization: Basic {R}"),
    "header without a scheme": ("Authorization: abc def\nHost: a", f"Authorization: {R}\nHost: a"),
    "header in JSON": ('{"Authorization": "Bearer abc"}', f'{{"Authorization": "Bearer {R}"}}'),
    "header of a shell command": ("-H 'Authorization: token a' b", f"-H 'Authorization: token {R}' b"),
    "cookie": ("Set-Cookie: a=b; c=d", f"Set-Cookie: {R}"),
    "bearer in a sentence": ("sent bearer abc to a", f"sent bearer {R} to a"),
    "password in a URL": ("nats://joe:pw@host:4222", f"nats://{R}@host:4222"),
    "password with @ in a URL": ("nats://joe:p@w@host:4222", f"nats://{R}@host:4222"),
    "password with / in a URL": ("nats://joe:p/w@host:4222", f"nats://{R}@host:4222"),
    "token in a URL": ("tls://abc@host", f"tls://{R}@host"),
    "several URLs": ("nats://a:b@h1,nats://c:d@h2", f"nats://{R}@h1,nats://{R}@h2"),
    "address without a scheme": ("at joe:pw@host:4222", f"at {R}@host:4222"),
    "query": ("?password=abc&x=1", f"?password={R}"),
    "JSON": ('{"password": "x", "a": 1}', f'{{"password": "{R}", "a": 1}}'),
    "JSON without spaces": ('{"token":"x","a":1}', f'{{"token":"{R}","a":1}}'),
    "JSON with quotes in the value": (r'{"secret": "a \"b\" c"}', f'{{"secret": "{R}"}}'),
    "JSON with a number": ('{"token": 123, "a": 1}', f'{{"token": {R}, "a": 1}}'),
    "JSON in a JSON string": (r'"{\"password\": \"x y\"}"', rf'"{{\"password\": \"{R}\"}}"'),
    "Python": ("{'api_key': 'x', 'a': b'y'}", f"{{'api_key': '{R}', 'a': b'y'}}"),
    "bytes": ("{'password': b'x'}", f"{{'password': '{R}'}}"),
    "camel case": ('"clientSecret": "x"', f'"clientSecret": "{R}"'),
    "variable": ("SLUICE_NATS_PASSWORD=a&b;c next", f"SLUICE_NATS_PASSWORD={R} next"),
    "key of a cloud": ("AWS_SECRET_ACCESS_KEY=a/b+c", f"AWS_SECRET_ACCESS_KEY={R}"),
    "option": ("--nats-password pw --user joe", f"--nats-password {R} --user joe"),
    "pairs with commas": ("token=abc,name=build-1", f"token={R},name=build-1"),
    "YAML": ("password: two words\nuser: joe", f"password: {R}\nuser: joe"),
    "YAML in a list": ("- token: a # b\n  user: joe", f"- token: {R}\n  user: joe"),
    "YAML block": ("password: |\n  one\n  two\nuser: joe", f"password: {R}\nuser: joe"),
    "named seed": ("seed: abc", f"seed: {R}"),
}  # fmt: skip

STAYS = (
    "team/build-1 waits for 2 cpu",
    "nats://127.0.0.1:4222",
    "https://host:8080/a@b",
    "quay.io/team/tool:v1@sha256:0123",
    "docker://quay.io/team/tool:v1@sha256:0123",
    "admitted by oidc:joe@example.com",
    "secretName: build-ssh",
    '"secret": {"name": "build-ssh"}',
    "secret:\n  secretName: build-ssh",
    "token_path=/var/run/token",
    "Secret sluicegate/machine-keys: is missing",
    "host.a.secret: required",
    "token expired for team/build",
    '"token": null',
    "password=",
    "played with seed=3, seed: 4",
    "tokens=12 secrets=4",
    "certificate: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t",
    "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
    "Authorization Violation",
)


@pytest.mark.parametrize(("text", "left"), GOES.values(), ids=GOES)
def test_secret_is_redacted_and_redacting_again_changes_nothing(text: str, left: str) -> None:
    assert redacted(text) == left
    assert redacted(left) == left


@pytest.mark.parametrize("text", STAYS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize("format_", ["json", "console"])
def test_log_has_no_secret(capsys: pytest.CaptureFixture[str], format_: str) -> None:
    configure_logging(service="quota", level="info", format_=format_, for_good=False)
    log = structlog.get_logger()
    log.info("connected", url=URL, token="abc", size=3)
    try:
        raise OSError(f"no answer of {URL}")
    except OSError:
        log.exception("failed")
    logging.getLogger("nats").error("lost %s", URL)

    written = capsys.readouterr().err

    assert written.count(f"nats://{R}@127.0.0.1:9") == 3
    assert "hidden" not in written
    assert "abc" not in written


async def test_readiness_names_the_server_without_its_password() -> None:
    def build(_parts: Parts) -> Service:
        return Idle()

    settings = ServiceSettings(nats_url=URL, instance="test")
    hosted = Hosted(Program(name="tracer", settings=settings, build=build))

    assert hosted.ready() == f"no connection to NATS at nats://{R}@127.0.0.1:9"
