"""Who asks through the API server, which has authenticated its users and vouches for them by its certificate.

The rules are Kubernetes' own for servers behind its aggregation layer
(`kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/authentication/request/headerrequest`): the API
server publishes them in a ConfigMap that every such server may read.
"""

import json
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from starlette.datastructures import Headers

from services.console.access.reviews import User
from services.console.status_error import ConsoleRule, StatusError
from shared.contracts.kube.kinds import CONFIG_MAP
from shared.kube.port import Kube

NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontProxy:
    """What the API server shows when it asks in the name of a user."""

    authority: str
    """PEM of what signed its certificate."""

    names: tuple[str, ...] = ()
    """Common names that its certificate may have. Empty: any that the authority signed."""

    user_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)

    def user(self, certificate: str | None, headers: Headers) -> User:
        """The user in whose name is asked. Raises `StatusError` 401 if nobody may be believed.

        `certificate`: common name of the client's certificate, which the authority has signed.
        """
        if certificate is None or (self.names and certificate not in self.names):
            raise StatusError(ConsoleRule.NOT_API_SERVER, name=certificate or "")
        name = _first(headers, self.user_headers)
        if not name:
            raise StatusError(ConsoleRule.NO_USER)
        groups = [value for header in self.group_headers for value in headers.getlist(header)]
        extra: dict[str, list[str]] = {}
        for header, value in headers.items():
            for prefix in self.extra_prefixes:
                if header.lower().startswith(prefix.lower()):
                    extra.setdefault(unquote(header[len(prefix) :].lower()), []).append(value)
        return User(
            name=name,
            uid=_first(headers, self.uid_headers),
            groups=tuple(groups),
            extra=tuple(sorted((key, tuple(values)) for key, values in extra.items())),
        )


async def read_front_proxy(kube: Kube) -> FrontProxy:
    """What the API server says of itself.

    Raises `KubeError` if the ConfigMap cannot be read, `ValueError` if nobody is to be believed by it.
    """
    found = await kube.get(CONFIG_MAP, NAMESPACE, NAME)
    data: dict[str, str] = found.get("data") or {}
    authority = data.get("requestheader-client-ca-file", "")
    if not authority:
        raise ValueError(
            f"ConfigMap {NAMESPACE}/{NAME}: no requestheader-client-ca-file: start the API server with"
            " --requestheader-client-ca-file, or leave console_visibility_port unset"
        )
    headers = {
        field: names
        for field, key in (
            ("user_headers", "requestheader-username-headers"),
            ("uid_headers", "requestheader-uid-headers"),
            ("group_headers", "requestheader-group-headers"),
            ("extra_prefixes", "requestheader-extra-headers-prefix"),
        )
        if (names := _names(data, key))
    }
    allowed = _names(data, "requestheader-allowed-names")
    return FrontProxy(authority=authority, names=allowed, **headers)


def _names(data: dict[str, str], key: str) -> tuple[str, ...]:
    given: Any = json.loads(data.get(key) or "[]")
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise ValueError(f"ConfigMap {NAMESPACE}/{NAME}: {key}: {data[key]!r} is no list of names")
    return tuple(given)


def _first(headers: Headers, names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := headers.get(name))), "")
