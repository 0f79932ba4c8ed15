"""`sluice dev --secure`: a NATS user for each service, TLS only, and client certificates."""

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from services.ctl.setup.permissions import key_file, rendered
from shared.bus.streams import DATA
from shared.runtime.certificates import issue_authority, issue_client, issue_serving
from shared.settings.access import LOCAL_NATS, VARIABLES, Access

HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """Keys, certificates and the server's configuration, in a folder of the system."""

    folder: Path
    config: Path

    def access(self, user: str) -> Access:
        """The credentials of `user`."""
        return replace(self.tls, nkey=key_file(self.folder, user))

    @property
    def tls(self) -> Access:
        """The certificates of every client."""
        return Access(
            ca=self.folder / "ca.crt",
            certificate=self.folder / "client.crt",
            private_key=self.folder / "client.key",
        )

    def environment(self, user: str) -> dict[str, str]:
        """The credentials of `user` as environment variables of a child process."""
        return _variables(self.access(user))

    def certificates(self) -> dict[str, str]:
        """The certificates of every client as environment variables, without a key."""
        return _variables(self.tls)


def _variables(access: Access) -> dict[str, str]:
    found = {name: getattr(access, field) for field, name in VARIABLES.items()}
    return {name: str(path) for name, path in found.items() if path is not None}


def secure(
    folder: Path, spokes: tuple[str, ...], now: datetime, *, url: str = LOCAL_NATS
) -> Secured:
    """Make all keys and certificates below `folder`, for a server at `url`. Existing files are deleted."""
    for old in folder.glob("*"):
        old.unlink()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = issue_authority(now)
    server = issue_serving(authority, (HOST, "localhost"), now)
    client = issue_client(authority, "sluicegate", now)
    (folder / "ca.crt").write_bytes(authority.certificate_pem())
    for name, pair in (("server", server), ("client", client)):
        (folder / f"{name}.crt").write_bytes(pair.certificate_pem())
        (folder / f"{name}.key").write_bytes(pair.key_pem())
        (folder / f"{name}.key").chmod(0o600)
    config = folder / "server.conf"
    secured = Secured(folder=folder, config=config)
    users, _ = rendered(folder, spokes, url=url, tls=secured.tls)
    lines = [
        (DATA / "server.conf").read_text(),
        "tls {",
        f'  cert_file: "{folder / "server.crt"}"',
        f'  key_file: "{folder / "server.key"}"',
        f'  ca_file: "{folder / "ca.crt"}"',
        "  verify: true",
        "}",
        users,
    ]
    config.write_text("\n".join(lines))
    return secured
