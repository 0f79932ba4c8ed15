"""Sign in with OpenID Connect at a real provider (`oidc-provider` from npm), in a real browser.

The cluster's part, to check the ID token against the provider's keys, is played by `Tokens`: an API server
with `--oidc-issuer-url` does the same for a TokenReview.
"""

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.hashes import SHA256
from typing_extensions import override

from services.console.access.reviews import User
from services.console.http.sign_in import CALLBACK, SignIn
from services.console.status_error import ConsoleRule, StatusError
from shared.testing.waiting import PATIENCE_SECONDS
from tests.integration.browser import Page
from tests.integration.console_stage import Place, console
from tests.integration.page.reading import NAMES, says
from tests.unit.console.people import People

FOLDER = Path(__file__).parent
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        shutil.which("node") is None or not (FOLDER / "node_modules/oidc-provider").exists(),
        reason="there is no oidc-provider: `make browser` installs it",
    ),
]


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


class Tokens(People):
    """Knows whose ID token it is by the keys of the provider, as an API server does."""

    def __init__(self, issuer: str) -> None:
        super().__init__(dana=("list workloads in team", "list clusterqueues"))
        self._issuer = issuer

    @override
    async def authenticate(self, token: str | None) -> User:
        parts = (token or "").split(".")
        if len(parts) != 3:
            raise StatusError(ConsoleRule.NO_TOKEN)
        head, claims = (json.loads(decoded(part)) for part in parts[:2])
        keys_of = f"{self._issuer}/jwks"
        async with aiohttp.ClientSession() as session, session.get(keys_of) as response:
            keys = (await response.json())["keys"]
        [key] = [key for key in keys if key["kid"] == head["kid"]]
        e, n = (int.from_bytes(decoded(key[name])) for name in ("e", "n"))
        signed = ".".join(parts[:2]).encode()
        try:
            public = RSAPublicNumbers(e, n).public_key()
            public.verify(decoded(parts[2]), signed, PKCS1v15(), SHA256())
        except InvalidSignature as error:
            raise StatusError(ConsoleRule.UNKNOWN_TOKEN) from error
        assert (claims["iss"], claims["aud"]) == (self._issuer, "console")
        return User(name=claims["sub"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def issuer() -> AsyncIterator[str]:
    """A provider for the file."""
    process = await asyncio.create_subprocess_exec(
        "node", "provider.mjs", cwd=FOLDER,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        port = int(await process.stdout.readline())
    yield f"http://127.0.0.1:{port}"
    process.kill()
    await process.wait()


@pytest_asyncio.fixture(loop_scope="module")
async def place(issuer: str) -> AsyncIterator[Place]:
    sign_in = SignIn(issuer=issuer, client_id="console", scopes=("openid",))
    async with console(people=True, access=Tokens(issuer), sign_in=sign_in) as place:
        await place.site.queue(cpu=1)
        await place.site.workload("first", cpu="2")
        await place.site.workload("theirs", cpu="2", namespace="others")
        await place.site.synced()
        yield place


async def submit(page: Page, field: str = "", text: str = "") -> None:
    """Fill in the form of the provider's page, and send it."""
    if field:
        await page.value(f"document.querySelector('[name={field}]').value = {text!r}")
    await page.value("document.querySelector('button[type=submit], form button').click()")


async def test_user_signs_in_at_the_provider_and_comes_back(
    tab: Page, place: Place, issuer: str
) -> None:
    tab.forget()
    await tab.open(f"{place.url}/workloads?status=PENDING")
    await tab.until("!document.getElementById('signin').hidden")
    await tab.until("document.activeElement.id === 'provider'")
    await tab.value("document.activeElement.click()")
    await tab.until("document.querySelector('[name=login]') !== null")
    assert (await tab.value("location.origin")) == issuer
    await tab.value("document.querySelector('[name=password]').value = 'any'")
    await submit(tab, "login", "dana")
    await tab.until("document.querySelector('[name=prompt][value=consent]') !== null")
    await submit(tab)
    # The names of others are not among them; the code is gone from the address.
    await tab.until(f"typeof document !== 'undefined' && {NAMES}.join() === 'first'")
    assert await tab.value("location.pathname + location.search") == "/workloads?status=PENDING"
    assert await tab.value("Object.keys(sessionStorage).join()") in {
        "sluicegate.token,sluicegate.namespace",
        "sluicegate.namespace,sluicegate.token",
    }
    assert [each for each in tab.complaints if "Content Security Policy" in each] == []
    await tab.open("about:blank")


ANSWERS: list[Any] = [
    pytest.param(None, "code=stolen&state=of-somebody", "belongs to no sign-in of this tab", id="foreign"),
    pytest.param("mine", "code=stolen&state=other", "belongs to no sign-in of this tab", id="mixed up"),
    pytest.param("mine", "error=access_denied&state=mine", "refused: access_denied", id="refused"),
    pytest.param("mine", "code=made-up&state=mine", "gave no token", id="made up"),
    pytest.param("mine", "code=x&state=mine&iss=https://evil", "is of https://evil", id="of another"),
]  # fmt: skip


@pytest.mark.parametrize(("state", "query", "message"), ANSWERS)
async def test_wrong_answer_of_a_provider_signs_no_user_in(
    tab: Page, place: Place, state: str | None, query: str, message: str
) -> None:
    tab.forget()
    await tab.open(f"{place.url}/icon.svg")
    pending = json.dumps({"verifier": "v" * 43, "state": state, "nonce": "n", "back": "/"})
    if state is not None:
        await tab.value(f"sessionStorage.setItem('sluicegate.signing-in', {pending!r})")
    await tab.open(f"{place.url}{CALLBACK}?{query}")
    await says(tab, "#signin-why", message)
    assert await tab.value("sessionStorage.length") == 0
    assert await tab.value("location.pathname + location.search") == "/"
    await tab.open("about:blank")
