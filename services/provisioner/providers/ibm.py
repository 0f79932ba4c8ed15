"""What the two providers of IBM Cloud share: sign-in, requests, errors, names.

Neither cloud keeps tags with a machine, so the name says whose it is: the last part begins with the
owner's mark (`services.provisioner.naming.owner_mark`). Never run on the real cloud: the tests use a
double of the published API.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import aiohttp

from services.provisioner.config.credentials import SecretError, Secrets
from services.provisioner.naming import owner_mark
from services.provisioner.providers.port import (
    Order,
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    read_bounded,
)

IAM_URL: Final = "https://iam.cloud.ibm.com/identity/token"
GRANT: Final = "urn:ibm:params:oauth:grant-type:apikey"
EARLY_SECONDS: Final = 60.0
"""A token is renewed this long before it expires."""

_OURS: Final = re.compile(r"-([0-9a-f]{6})[0-9a-f]{10}")
_CAPACITY: Final = re.compile(
    r"over_?quota|quota|capacity|insufficient|limit (reached|exceeded)|resources_unavailable",
    re.IGNORECASE,
)


class IbmClient:
    """Requests with one API key."""

    def __init__(
        self,
        *,
        provider: str,
        url: str,
        secrets: Secrets,
        secret: str,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        iam_url: str = IAM_URL,
    ) -> None:
        """`url`: what all paths begin with. `headers`, `params`: of every request."""
        self._provider = provider
        self._secrets = secrets
        self._secret = secret
        self._url = url
        self._headers = dict(headers or {})
        self._params = dict(params or {})
        self._iam_url = iam_url
        self._session: aiohttp.ClientSession | None = None
        self._token = ""
        self._token_ends = 0.0
        self._signing_in = asyncio.Lock()

    async def request(
        self,
        method: str,
        path: str,
        action: str,
        name: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """Returns the status (2xx, 404 or 409) and the JSON of the response. Raises `ProviderError`.

        `action` and `name` (of the machine) are for the message of the error.
        """
        token = await self._signed_in(action, name)
        headers = {**self._headers, "Authorization": f"Bearer {token}"}
        try:
            async with self._http().request(
                method,
                self._url + path,
                params={**self._params, **(params or {})},
                json=body,
                headers=headers,
            ) as answer:
                text = await _text(answer)
                if answer.status in {404, 409} or answer.ok:
                    return answer.status, _json(text)
                if answer.status == 401:
                    self._token = ""  # It may be revoked: the next call signs in again.
                raise self._translated(action, name, answer.status, text)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ProviderError(self._provider, action, name, repr(error)) from error

    async def read_page(
        self,
        path: str,
        field: str,
        action: str,
        name: str,
        *,
        params: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Returns a page of a list, with the objects under `field`. Raises `ProviderError`.

        An answer without that field is none of the cloud: a proxy may have given it. Taken for an empty
        list, it would say that all machines are gone.
        """
        _, page = await self.request("GET", path, action, name, params=params)
        found = page.get(field)
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            text = f"the answer is none of the cloud: it has no {field}"
            raise ProviderError(self._provider, action, name, text)
        return page

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Nothing is unpacked: a few packed bytes could grow to any size.
            self._session = aiohttp.ClientSession(
                auto_decompress=False, headers={"Accept-Encoding": "identity"}
            )
        return self._session

    async def _signed_in(self, action: str, name: str) -> str:
        time = asyncio.get_running_loop().time
        async with self._signing_in:
            if self._token and time() < self._token_ends:
                return self._token
            try:
                key = self._secrets.read(self._secret, "api-key").decode().strip()
            except SecretError as error:
                raise ProviderRefusedError(self._provider, action, name, str(error)) from error
            form = {"grant_type": GRANT, "apikey": key}
            try:
                async with self._http().post(self._iam_url, data=form) as answer:
                    if not answer.ok:
                        # The body may quote the API key.
                        raise self._translated(action, name, answer.status, "cannot sign in")
                    token = _json(await _text(answer))
                self._token = str(token["access_token"])
                self._token_ends = time() + float(token["expires_in"]) - EARLY_SECONDS
            except (aiohttp.ClientError, TimeoutError, KeyError, ValueError) as error:
                text = f"cannot sign in: {type(error).__name__}"
                raise ProviderError(self._provider, action, name, text) from error
            return self._token

    def _translated(self, action: str, name: str, status: int, text: str) -> ProviderError:
        reason = f"{status}: {text[:300]}"
        if status == 429 or (status != 401 and _CAPACITY.search(text)):
            return ProviderBusyError(self._provider, action, name, reason)
        if status >= 500 or status == 401:
            return ProviderError(self._provider, action, name, reason)
        return ProviderRefusedError(self._provider, action, name, reason)


async def _text(answer: aiohttp.ClientResponse) -> str:
    """Raises `ValueError` for what is too long."""
    return (await read_bounded(answer.content)).decode(errors="replace")


def _json(text: str) -> dict[str, Any]:
    content = json.loads(text) if text else {}
    return content if isinstance(content, dict) else {"items": content}


def is_owned_by(name: str, owner: str) -> bool:
    """Whether the name of a machine says that it was ordered for `owner`."""
    found = _OURS.fullmatch(name[-17:])
    return found is not None and found.group(1) == owner_mark(owner)


def number_parameter(order: Order, key: str, default: float) -> float:
    """The number under `key`, which `ParameterRules` has checked."""
    found = float(order.parameters.get(key) or default)
    return int(found) if found == int(found) else found


def parse_time(value: Any) -> datetime | None:
    """A time of the API; None if there is none."""
    return datetime.fromisoformat(value) if isinstance(value, str) and value else None
