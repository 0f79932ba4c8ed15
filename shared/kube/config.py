"""Address and credentials of an API server: the only module that imports kubernetes_asyncio.

The library reads kubeconfig files and service accounts, runs credential plugins and refreshes what
they gave; `shared.kube.client` sends the requests itself, because the library's own client costs
three times the CPU and its watch hangs or spins under common faults.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from shared.kube.kubeconfig import Credentials, read_plain
from shared.kube.port import RefusedError


async def _nobody() -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Address and credentials of one API server, as read at one time; files may be renewed later."""

    server: str
    """Without a slash at the end."""

    tls: ssl.SSLContext | None = None
    """None for plain HTTP."""

    tls_server_name: str | None = None
    """Name in the server's certificate, if it is not the host in `server`."""

    proxy: str | None = None

    authorization: Callable[[], Awaitable[str | None]] = _nobody
    """Returns the header's value; reads, refreshes or calls a plugin if needed. None: no header."""


OpenAccess = Callable[[], Awaitable[Access]]
"""Reads the credentials again. Raises `RefusedError` with the reason if that fails."""


def plain(server: str) -> OpenAccess:
    """A server without authentication: a simulator, or ``kubectl proxy``."""

    async def open_() -> Access:
        return Access(server=server.rstrip("/"))

    return open_


def from_settings(kubeconfig: str | None, context: str | None = None) -> OpenAccess:
    """The file where one is named, else the service account of the pod."""
    return in_cluster() if kubeconfig is None else from_kubeconfig(kubeconfig, context)


def from_kubeconfig(path: str, context: str | None = None) -> OpenAccess:
    """A kubeconfig file, with everything that the library understands in one."""

    async def open_() -> Access:
        if (simple := read_plain(path, context)) is not None:
            return _simple(simple, f"kubeconfig {path}")
        # Imported here, because the import takes two seconds and 80 MiB.
        from kubernetes_asyncio.client import Configuration  # noqa: PLC0415
        from kubernetes_asyncio.config import load_kube_config  # noqa: PLC0415

        configuration = Configuration()
        try:
            loader = await load_kube_config(
                config_file=path,
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
        except Exception as error:  # The library raises what its parts raise: YAML, OS, plugins.
            raise RefusedError(f"kubeconfig {path}: {_description(error)}") from error

        async def renew(current: Any) -> None:
            # Only a plugin that said when its token ends is asked again; the others are read anew
            # when the server refuses what they gave.
            if getattr(loader, "exec_plugin_expiry", None) is None:
                return
            await loader.load_from_exec_plugin()
            current.api_key["BearerToken"] = loader.token

        configuration.refresh_api_key_hook = renew
        return _access(configuration, f"kubeconfig {path}")

    return open_


def in_cluster() -> OpenAccess:
    """The pod's service account; its token is read again every minute."""

    async def open_() -> Access:
        from kubernetes_asyncio.client import Configuration  # noqa: PLC0415 - as above
        from kubernetes_asyncio.config import load_incluster_config  # noqa: PLC0415

        configuration = Configuration()
        try:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise RefusedError(f"no service account: {_description(error)}") from error
        return _access(configuration, "service account")

    return open_


def _simple(credentials: Credentials, source: str) -> Access:
    token = credentials.token

    async def authorization() -> str | None:
        return None if token is None else f"Bearer {token}"

    try:
        tls = credentials.tls()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise RefusedError(f"{source}: {_description(error)}") from error
    return Access(
        server=credentials.server,
        tls=tls,
        tls_server_name=credentials.tls_server_name,
        authorization=authorization,
    )


def _access(configuration: Any, source: str) -> Access:
    async def authorization() -> str | None:
        try:
            value = await configuration.get_api_key_with_prefix("BearerToken")
        except asyncio.CancelledError:
            raise
        except Exception as error:
            raise RefusedError(f"{source}: {_description(error)}") from error
        return None if value is None else str(value)

    host = str(configuration.host)
    try:
        tls = _tls(configuration) if host.startswith("https") else None
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise RefusedError(f"{source}: {_description(error)}") from error
    return Access(
        server=host.rstrip("/"),
        tls=tls,
        tls_server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
        authorization=authorization,
    )


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    # Python 3.13 asks for extensions that the CAs of many clusters do not carry; no other client does.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _description(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
