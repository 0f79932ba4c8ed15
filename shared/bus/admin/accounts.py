"""A NATS account for each spoke: the subjects that it may publish to the hub and read from it.

Within one account everybody's answers, and whatever the server is told to send somewhere, go through the
same subjects. A spoke in the hub's account could have the server write its own words under any name. In an
account of its own nothing of the hub is there but what is imported: each subject that it writes to, its
durable consumers, and the door (`shared.bus.spoke_gateway`) at which it asks for the rest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from shared.bus.admin.permissions import (
    HUB,
    PERMISSIONS_FILE,
    Permissions,
    Rights,
    permissions,
    rights_of,
)
from shared.bus.filters import covers
from shared.bus.streams import LEASES, load, view_of
from shared.contracts import subjects
from shared.settings.access import OPEN, Access

DOOR: Final = f"{subjects.ROOT}.door"
"""``sluice.door.<spoke>.<what is asked below $JS.API>``."""

HUB_ACCOUNT: Final = "HUB"
API: Final = "$JS.hub.API"
"""Under this a spoke asks for what is JetStream's; its account, and its leaf node, map `$JS.API` to it. That
itself no leaf node lets through, and the server would answer it besides: the account has no JetStream."""

PLACES: Final = 16
"""Consumers of one spoke on one view at a time. The server deletes unused ones after a minute."""

_ASKED: Final = (
    *("STREAM.INFO.*", "STREAM.MSG.GET.*"),
    *("CONSUMER.CREATE.*.*", "CONSUMER.INFO.*.*", "CONSUMER.DELETE.*.*"),
)
"""What is looked at. Pulls and acknowledgements go to the server itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokeAccess:
    """What one spoke may ask for, in the words of JetStream."""

    own: str
    """Every subject that is about it: its name stands in the third place."""

    logs: tuple[str, ...]
    views: tuple[str, ...]
    views_all: tuple[str, ...]
    """Also those of which it may only know how far they are."""

    durables: Mapping[str, tuple[str, ...]]
    """View to names."""

    places: tuple[str, ...]
    """Names of consumers to watch by, of any view."""

    leases: tuple[str, ...]

    def may_watch(self, stream: str, subject: str) -> bool:
        """Whether it may follow `subject`, which may hold wildcards, in `stream`."""
        return stream in self.views and covers(self.own, subject)

    def may_read(self, stream: str, subject: str) -> bool:
        """Whether it may be given the last message of `subject`."""
        if stream == LEASES:
            return subject in self.leases
        return stream in (*self.logs, *self.views) and covers(self.own, subject)


def spoke_rights(spoke: str, *, path: Path = PERMISSIONS_FILE) -> Rights:
    """What the file says of a spoke. Raises `CatalogueError`, and ValueError for a name that is none."""
    return rights_of(spokes=(spoke,), path=path)[f"spoke-{spoke}"]


@lru_cache(maxsize=256)
def spoke_access(token: str) -> SpokeAccess:
    """What the spoke with this token may ask for. Raises ValueError where no spoke has it."""
    name = subjects.decode(token)
    if name is None or subjects.encode(name) != token:
        raise ValueError(f"{token!r} is no spoke")
    rights = spoke_rights(name)
    logs = load().logs
    written = [log for log, each in logs.items() if _takes_any(each.subjects, rights.writes)]
    return SpokeAccess(
        own=f"{subjects.ROOT}.*.{token}.>",
        logs=tuple(dict.fromkeys((*rights.reads, *written))),
        views=tuple(view_of(log) for log in dict.fromkeys((*rights.reads, *rights.works))),
        views_all=tuple(view_of(log) for log in logs),
        durables={view_of(log): tuple(names) for log, names in rights.works.items()},
        places=tuple(f"reader-{token}-{number}" for number in range(PLACES)),
        leases=tuple(subjects.join("lease", name) for name in rights.leases),
    )


def _takes_any(filters: Iterable[str], written: Iterable[str]) -> bool:
    return any(covers(one, subject) for one in filters for subject in written)


def hub_configuration(keys: Mapping[str, str], *, spokes: Sequence[str], cluster: str = HUB) -> str:
    """The users of a hub and its spokes, as a block that `server.conf` includes: each has its key.

    `keys`: name of each user to its public key; a spoke's is ``spoke-<name>``. Raises KeyError without one,
    ValueError for a name that is none.
    """
    rights_of(spokes=spokes, cluster=cluster)  # Raises for names that are none.
    users = permissions(rights_of(cluster=cluster), keys=keys)
    hub = "\n".join(line for name, each in users.items() for line in _user(name, each, keys[name]))
    head = "# Made by `sluice bus permissions`: change deploy/nats/permissions.yaml, and make it again."
    proofs = {spoke: f"nkey: {keys[f'spoke-{spoke}']}" for spoke in spokes}
    return f"{head}\n{accounts(hub, proofs)}"


def accounts(hub_users: str, spokes: Mapping[str, str]) -> str:
    """The `accounts` block of the hub's server: its own users, and an account for each spoke.

    `hub_users`: what stands between the brackets of `users`. `spokes`: name to how its user proves itself,
    as ``nkey: U…`` or ``user: east, password: …``. Raises ValueError for a name that is none.
    """
    exports: list[str] = []
    blocks: list[str] = []
    for spoke, proof in spokes.items():
        rights = spoke_rights(spoke)
        token = subjects.encode(spoke)
        given = list(_given(token, spoke_access(token), rights))
        exports += [
            f"      {{ service: {_quoted(subject)}, accounts: [{_account(token)}]{more} }}"
            for subject, more, _ in given
        ]
        imports = [
            f"      {{ service: {{ account: {HUB_ACCOUNT}, subject: {_quoted(subject)} }}"
            + (f", to: {_quoted(local)}" if local != subject else "")
            + " }"
            for subject, _, local in given
        ]
        blocks += [
            f"  # The spoke {spoke}: it has nothing but what is listed here.",
            f"  {_account(token)} {{",
            f"    users: [ {{ {proof} }} ]",
            f'    mappings: {{ "$JS.API.>": "{API}.>" }}',
            "    imports: [",
            *imports,
            "    ]",
            "  }",
        ]
    return "\n".join(
        [
            "accounts {",
            f"  {HUB_ACCOUNT} {{",
            "    jetstream: enabled",
            f"    users: [\n{hub_users}\n    ]",
            "    exports: [",
            *exports,
            "    ]",
            "  }",
            *blocks,
            "}",
            "",
        ]
    )


def leaf_configuration(url: str, access: Access = OPEN) -> str:
    """The configuration of a spoke's own server that dials out to the hub, and keeps nothing.

    `access`: how it proves itself there. Of a key the seed itself is in it: keep it as secret as that. Files
    of TLS are where that server finds them. Raises ValueError where the key is none.
    """
    named = "" if access.nkey is None else f", nkey: {access.seed()}"
    tls = (
        ("ca_file", access.ca),
        ("cert_file", access.certificate),
        ("key_file", access.private_key),
    )
    files = ", ".join(f"{what}: {_quoted(str(file))}" for what, file in tls if file is not None)
    named += f", tls {{ {files} }}" if files else ""
    return "\n".join(
        [
            "max_payload: 4MB",
            "# It keeps nothing: what asks for JetStream here asks at the hub's door.",
            f'mappings {{ "$JS.API.>": "{API}.>" }}',
            f"leafnodes {{ reconnect: 1s, remotes: [ {{ url: {_quoted(url)}{named} }} ] }}",
            "",
        ]
    )


def _given(token: str, access: SpokeAccess, rights: Rights) -> Iterator[tuple[str, str, str]]:
    """What the hub exports to one spoke: subject there, options, and the subject in the spoke's account."""
    for subject in (*rights.writes, *access.leases):
        yield subject, "", subject
    for asked in _ASKED:
        yield f"{DOOR}.{token}.{asked}", "", f"{API}.{asked}"
    consumers = [name for names in access.durables.values() for name in names]
    for name in (*consumers, *access.places):
        pull = f"CONSUMER.MSG.NEXT.*.{name}"
        yield f"$JS.API.{pull}", ", response_type: stream", f"{API}.{pull}"
    for name in consumers:
        # With domain and account before the stream, as newer servers may have it.
        for subject in (f"$JS.ACK.*.{name}.>", f"$JS.ACK.*.*.*.{name}.>"):
            yield subject, "", subject


def _user(name: str, allowed: Permissions, key: str) -> Iterator[str]:
    yield from (f"      # {name}", "      {", f"        nkey: {key}", "        permissions: {")
    yield from (f"          {line}" for line in allowed.server_configuration().splitlines())
    yield from ("        }", "      }")


def _account(token: str) -> str:
    return f"SPOKE-{token}"


def _quoted(text: str) -> str:
    return f'"{text}"'
