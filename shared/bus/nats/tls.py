"""A connection that shall be secret is never one in plain text: nats-py takes what the server offers."""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from nats.aio.client import Client

_SECRET: Final = frozenset({"tls", "wss"})
"""Schemes of URLs that ask for TLS."""

_WEB: Final = frozenset({"ws", "wss"})
"""A websocket is encrypted before the server says anything, or never."""


def refuse_plain_text(client: "type[Client]") -> None:
    """Make connections of this class fail where TLS is asked for and the server offers none.

    A URL with ``tls://`` asks for it, and so does `Access.ca`. Without this the library goes on in plain
    text: whoever stands between could read and change everything. It looks before it says who it is, at
    each connect and reconnect. There is no public way. Doing it twice has no effect.
    """
    if getattr(client, "refuses_plain_text", False):
        return
    process = client._process_info  # noqa: SLF001 # as said

    async def checked(
        self: "Client", info: dict[str, Any], initial_connection: bool = False
    ) -> None:
        from nats.errors import Error  # noqa: PLC0415 - the library may not be imported yet

        server = self._current_server
        scheme = "" if server is None else str(server.uri.scheme)
        wanted = initial_connection and ("tls" in self.options or scheme in _SECRET)
        if wanted and scheme not in _WEB and info.get("tls_available"):
            info["tls_required"] = True  # The library takes up only what the server insists on.
        encrypted = scheme == "wss" if scheme in _WEB else bool(info.get("tls_required"))
        if wanted and not encrypted:
            if self._transport is not None:  # The library leaves it open, and makes another.
                self._transport.close()  # type: ignore[no-untyped-call]
            raise Error("the server offers no TLS, and TLS is asked for: by tls:// or by a CA")
        await process(self, info, initial_connection)

    client._process_info = checked  # type: ignore[method-assign]  # noqa: SLF001
    client.refuses_plain_text = True  # type: ignore[attr-defined]
