"""How a client authenticates to NATS and verifies the server.

Commands import it, so it loads nothing expensive before it is used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from logging import LogRecord
    from ssl import SSLContext

LOCAL_NATS: Final = "nats://127.0.0.1:4222"
"""URL of a NATS server of this machine, at its usual port: the default of all that connect."""

INBOX: Final = "_INBOX"
ID_LETTERS: Final = 32
"""128 bits: nobody guesses one, and no two messages of a log have the same."""

DENIED: Final = "permissions violation for publish"
"""How the server begins to say that a user may not send something, in the library's small letters."""

VARIABLES: Final = {
    "credentials": "SLUICE_NATS_CREDENTIALS",
    "nkey": "SLUICE_NATS_NKEY",
    "ca": "SLUICE_NATS_CA",
    "certificate": "SLUICE_NATS_CERTIFICATE",
    "private_key": "SLUICE_NATS_PRIVATE_KEY",
}
"""Names of the environment variables: settings of every service, understood by every command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Paths of mounted files. If all are None, the server asks for nothing and there is no TLS."""

    credentials: Path | None = None
    """A credentials file: a JWT and its seed."""

    nkey: Path | None = None
    """A file with the seed of an nkey, as `sluice bus permissions --keys` makes it."""

    ca: Path | None = None
    """CA of the server's certificate. If it is set, the connection uses TLS."""

    certificate: Path | None = None
    private_key: Path | None = None
    """Client certificate, for servers that verify clients."""

    def options(self) -> dict[str, Any]:
        """Options for `nats.connect`. Raises ValueError with a sentence if a file cannot be used."""
        found: dict[str, Any] = {}
        if self.nkey is not None:
            seed = self.seed()
            found |= {"nkeys_seed_str": seed, "inbox_prefix": inbox_of(public_key(seed))}
        elif self.credentials is not None:
            found["user_credentials"] = str(self.credentials)
        if (context := self.tls()) is not None:
            found["tls"] = context
        return found

    def identity(self) -> bytes:
        """Contents of the files that identify us to the server. If they change, connect anew."""
        return _contents(self.nkey, self.credentials)

    def trust(self) -> bytes:
        """Contents of the certificate files as they are now, for the next connection."""
        return _contents(self.ca, self.certificate, self.private_key)

    def seed(self) -> str:
        """The seed of the nkey. Raises ValueError if the file contains none."""
        assert self.nkey is not None
        try:
            seed = self.nkey.read_text().strip()
            public_key(seed)
        except (OSError, ValueError) as error:
            raise ValueError(f"{self.nkey}: not the seed of an nkey: {error}") from error
        return seed

    def message_ids(self) -> Callable[[str], str]:
        """Return the function from a message's name to its `Nats-Msg-Id`, by which the server deduplicates.

        With an nkey the id is an HMAC of the name: replicas with one key make the same id, and another writer
        cannot guess it. Otherwise a writer to the same stream could publish the next id first, and the server
        would drop our message as a duplicate. Without a key the name is the id.

        Raises ValueError if the file of the nkey contains no seed.
        """
        if self.nkey is None:
            return str
        import hmac  # noqa: PLC0415

        key = self.seed().encode()
        return lambda name: hmac.digest(key, name.encode(), "sha256").hex()[:ID_LETTERS]

    def tls(self) -> "SSLContext | None":
        """A TLS context that trusts only `ca` and shows the certificate; None without TLS."""
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
        _hide_tls_warning()
        return context

    def show(self, context: "SSLContext") -> None:
        """Load the client certificate into `context`, again after each renewal."""
        if self.certificate is None:
            return
        try:
            context.load_cert_chain(self.certificate, self.private_key)
        except OSError as error:  # SSL's own errors are such
            raise ValueError(
                f"{self.certificate}: not a certificate with its key: {error}"
            ) from error


def _contents(*files: Path | None) -> bytes:
    """The bytes of all files; of one that cannot be read, none."""
    found = b""
    for file in files:
        try:
            found += b"" if file is None else file.read_bytes()
        except OSError:
            continue  # It is being replaced, or `options` says what is wrong with it.
    return found


def _hide_tls_warning() -> None:
    """Hide a warning of asyncio at the end of each connection that the library upgraded to TLS."""
    import logging  # noqa: PLC0415

    # Adding the same filter twice has no effect.
    logging.getLogger("asyncio").addFilter(_is_no_tls_warning)


def _is_no_tls_warning(record: "LogRecord") -> bool:
    return "eof_received()" not in str(record.msg)


OPEN: Final = Access()
"""No authentication and no TLS."""


def access_of(variables: Mapping[str, str]) -> Access:
    """The access that these variables configure. An empty variable counts as absent."""
    return Access(
        **{field: Path(variables[name]) for field, name in VARIABLES.items() if variables.get(name)}
    )


def public_key(seed: str) -> str:
    """The public key by which the server knows the user. Raises ValueError for an invalid seed."""
    import nkeys  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        pair = nkeys.from_seed(bytearray(seed.encode()))
        public: bytes = pair.public_key
    except Exception as error:  # The library lets its internal errors through.
        raise ValueError(type(error).__name__) from error
    if not public.startswith(b"U"):
        raise ValueError("it is no user's")
    return public.decode()


def new_key() -> tuple[str, str]:
    """Seed and public key of a new user."""
    import os  # noqa: PLC0415

    import nkeys  # noqa: PLC0415

    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER).decode()
    return seed, public_key(seed)


def inbox_of(key: str | None) -> str:
    """Prefix of reply subjects of this user. No other user may subscribe below it."""
    return INBOX if key is None else f"{INBOX}.{key}"


def user_of(inbox: str) -> str:
    """The user whose inbox this is, by its public key, as the configuration of the server has it."""
    _, *rest = inbox.split(".")
    named = len(rest) > 1 and rest[0].startswith("U")
    return f"user {rest[0]}" if named else "user of this connection"


def denial(error: Exception, subject: str, user: str) -> str | None:
    """What to tell who sent a request to `subject`, if the server says by `error` that it may not; else None.

    An account without the streams maps `$JS.API` to `$JS.hub.API`; the server names the subject so, and the
    library in small letters.
    """
    text = str(error).casefold()
    if DENIED not in text or f'{subject.removeprefix("$JS").casefold()}"' not in text:
        return None
    return (
        f"{subject}: NATS does not let the {user} ask this: grant it in deploy/nats/permissions.yaml, "
        "make the server's users again (`sluice bus permissions`), and reload the server"
    )
