"""Reads the kubeconfig files that most clusters give out, without the library.

Importing kubernetes_asyncio costs two seconds, which the event loop stands still for, and 80 MiB. A file
that needs more than is understood here (plugins, impersonation, proxies) is the library's.
"""

import base64
import binascii
import ssl
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

_CLUSTER_KEYS: Final = frozenset(
    {
        "server",
        "certificate-authority",
        "certificate-authority-data",
        "insecure-skip-tls-verify",
        "tls-server-name",
        "extensions",
    }
)
_USER_KEYS: Final = frozenset(
    {
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
        "token",
        "extensions",
    }
)


_MALFORMED: Final = (AttributeError, KeyError, RecursionError, TypeError, ValueError)
"""What comes of a document that has another form."""


class Credentials:
    """Credentials of a plain kubeconfig file."""

    def __init__(self, cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> None:
        self._cluster = cluster
        self._user = user
        self._folder = folder
        self.server = str(cluster["server"]).rstrip("/")
        self.tls_server_name: str | None = cluster.get("tls-server-name")
        self.token: str | None = user.get("token") or None

    def tls(self) -> ssl.SSLContext | None:
        """None for plain HTTP. Raises OSError or ValueError where a certificate cannot be used."""
        if not self.server.startswith("https"):
            return None
        context = ssl.create_default_context(
            cafile=self._path(self._cluster, "certificate-authority"),
            cadata=_text(self._cluster, "certificate-authority-data"),
        )
        # Python 3.13 asks for extensions that the CAs of many clusters do not carry.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._present(context)
        if self._cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _present(self, context: ssl.SSLContext) -> None:
        """Load the client's certificate; what is inline goes over a file that is gone at once."""
        with TemporaryDirectory(prefix="sluice-") as made:
            found = []
            for field in ("client-certificate", "client-key"):
                path = self._path(self._user, field)
                if (inline := _text(self._user, f"{field}-data")) is not None:
                    file = Path(made) / field
                    file.touch(mode=0o600)
                    file.write_text(inline, encoding="ascii")
                    path = str(file)
                found.append(path)
            if found[0] is not None:
                context.load_cert_chain(found[0], keyfile=found[1])

    def _path(self, section: Mapping[str, Any], field: str) -> str | None:
        value = section.get(field)
        return None if not value else str(self._folder / str(value))


def read_plain(path: str, context: str | None) -> Credentials | None:
    """Return the credentials of a plain file; None for any other or broken file."""
    file = Path(path)
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        chosen = _named(document["contexts"], context or document["current-context"])["context"]
        cluster = _named(document["clusters"], chosen["cluster"])["cluster"]
        user = _named(document.get("users") or [], chosen.get("user"))["user"] or {}
        if not set(cluster) <= _CLUSTER_KEYS or not set(user) <= _USER_KEYS:
            return None
        return Credentials(cluster, user, file.parent)
    except (OSError, yaml.YAMLError, *_MALFORMED):
        return None  # The library reports what is wrong with it.


def _named(entries: list[Any], name: object) -> Mapping[str, Any]:
    by_name: Mapping[object, Mapping[str, Any]] = {entry["name"]: entry for entry in entries}
    return by_name[name]


def _text(section: Mapping[str, Any], field: str) -> str | None:
    value = section.get(field)
    if not value:
        return None
    try:
        return base64.b64decode(str(value), validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{field} is no base64 of PEM") from error
