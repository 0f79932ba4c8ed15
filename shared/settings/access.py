"""How a client proves to NATS who it is, and knows that it speaks to the right server.

Imported by commands that a person waits for: nothing here costs time before it is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from logging import LogRecord
    from ssl import SSLContext

INBOX: Final = "_INBOX"
VARIABLES: Final = {
    "credentials": "SLUICE_NATS_CREDENTIALS",
    "nkey": "SLUICE_NATS_NKEY",
    "ca": "SLUICE_NATS_CA",
    "certificate": "SLUICE_NATS_CERTIFICATE",
    "private_key": "SLUICE_NATS_PRIVATE_KEY",
}
"""The environment's names: settings of every service, understood by every command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Files, as they are mounted. Where all are None, the server asks nothing and there is no TLS."""

    credentials: Path | None = None
    """A credentials file: a JWT and its seed."""

    nkey: Path | None = None
    """A file with the seed of an nkey, as `sluice bus permissions --keys` makes it."""

    ca: Path | None = None
    """Whose certificate the server must have. Given: the connection is TLS, or there is none."""

    certificate: Path | None = None
    private_key: Path | None = None
    """What the client shows, where the server verifies clients."""

    def options(self) -> dict[str, Any]:
        """For `nats.connect`. Raises ValueError in a sentence for files that cannot be used."""
        found: dict[str, Any] = {}
        if self.nkey is not None:
            seed = self.seed()
            found |= {"nkeys_seed_str": seed, "inbox_prefix": inbox_of(public_key(seed))}
        elif self.credentials is not None:
            found["user_credentials"] = str(self.credentials)
        if (context := self.tls()) is not None:
            found["tls"] = context
        return found

    def seed(self) -> str:
        """The seed of the nkey. Raises ValueError where there is none in the file."""
        assert self.nkey is not None
        try:
            seed = self.nkey.read_text().strip()
            public_key(seed)
        except (OSError, ValueError) as error:
            raise ValueError(f"{self.nkey}: not the seed of an nkey: {error}") from error
        return seed

    def tls(self) -> "SSLContext | None":
        """A context that trusts `ca` alone and shows the certificate; None: no TLS is asked for."""
        if self.ca is None:
            if self.certificate is not None or self.private_key is not None:
                raise ValueError("a certificate for NATS, and no CA to know the server by")
            return None
        import ssl  # noqa: PLC0415

        try:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(self.ca))
        except OSError as error:
            raise ValueError(f"{self.ca}: not a CA certificate: {error}") from error
        self.show(context)
        _hush()
        return context

    def show(self, context: "SSLContext") -> None:
        """Load the client's certificate into `context`; once more when it was renewed."""
        if self.certificate is None:
            return
        try:
            context.load_cert_chain(self.certificate, self.private_key)
        except OSError as error:  # SSL's own errors are such
            raise ValueError(
                f"{self.certificate}: not a certificate with its key: {error}"
            ) from error


def _hush() -> None:
    """Of each connection that the library gave TLS asyncio warns at its end, and nothing is wrong."""
    import logging  # noqa: PLC0415

    # The same one is added once only.
    logging.getLogger("asyncio").addFilter(_tells)


def _tells(record: "LogRecord") -> bool:
    return "eof_received()" not in str(record.msg)


OPEN: Final = Access()
"""No proof, no TLS."""


def access_of(variables: Mapping[str, str]) -> Access:
    """What these variables say, for instance the environment's. An empty one says nothing."""
    return Access(
        **{field: Path(variables[name]) for field, name in VARIABLES.items() if variables.get(name)}
    )


def public_key(seed: str) -> str:
    """The public key, by which the server knows the user. Raises ValueError for what is no seed."""
    import nkeys  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        pair = nkeys.from_seed(bytearray(seed.encode()))
        public: bytes = pair.public_key
    except Exception as error:  # the library lets through whatever went wrong inside it
        raise ValueError(type(error).__name__) from error
    if not public.startswith(b"U"):
        raise ValueError("it is no user's")
    return public.decode()


def new_key() -> tuple[str, str]:
    """A new user's seed and public key."""
    import os  # noqa: PLC0415

    import nkeys  # noqa: PLC0415

    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER).decode()
    return seed, public_key(seed)


def inbox_of(key: str | None) -> str:
    """Where answers to this user go: below its own prefix, which nobody else may hear."""
    return INBOX if key is None else f"{INBOX}.{key}"
