"""A NATS account for each user: the requests that it imports from the account of the streams.

Within one account everybody's answers, and whatever the server is told to send somewhere, go through the
same subjects. Whoever shares the account of the streams has the server write for him under any name, by
naming that as the place for an answer. In an account of its own nothing is there but what is imported: each
subject that a user writes to, what it asks JetStream, and its durable consumers. A spoke asks JetStream, and
writes, at the door (`shared.bus.spoke_gateway`), which looks at the body of a request and at how much it
writes. Each key of a spoke has an account: where the key is no longer accepted, the account is gone, and
with it whatever a connection could do that the server leaves open, as it does with those of leaf nodes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from shared.bus.admin.permissions import (
    ACKNOWLEDGED,
    API,
    HUB,
    OWN_API,
    PERMISSIONS_FILE,
    Permissions,
    Rights,
    hints_of,
    permissions,
    rights_of,
)
from shared.bus.filters import covers, prune
from shared.bus.streams import LEADER_ELECTED, LEASES, LIVE, load, view_of
from shared.contracts import subjects
from shared.settings.access import OPEN, Access

SPOKE_LIMITS: Final = "limits { max_connections: 16, max_subscriptions: 1000, max_leafnodes: 4 }"
"""Of one spoke: its watcher and patcher, each twice during a rollout, and one operator who reads."""

GATEWAY: Final = f"{subjects.ROOT}.door"
"""``sluice.door.<spoke>.<what is asked below $JS.API>``."""

WRITE: Final = "write"
"""``sluice.door.<spoke>.write.<the subject that the spoke writes to>``."""

HUB_ACCOUNT: Final = "HUB"

SYSTEM_ACCOUNT: Final = '"$SYS"'
"""In which the servers answer for themselves. Quoted, because a name that begins so is a variable."""

SERVERS: Final = "$SYS.REQ.SERVER."
"""What is asked below it is imported from that account. `$SYS.REQ.USER.INFO` everybody has by itself."""

KEY_SHOWN: Final = 16
"""So many characters of a public key, from its end, tell its account from those of other keys."""

_BY_CLIENT: Final = "allowed_connection_types: [STANDARD]"
"""How users of the hub connect. The key of one opens nothing at the port for leaf nodes."""

_BY_CLIENT_OR_LEAF: Final = "allowed_connection_types: [STANDARD, LEAFNODE]"
"""How spokes connect: their pairs, or a server of theirs that dials in as a leaf node."""

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
    """Also those of which it may only know how far they are. Those that it has no use for seem empty."""

    @property
    def views_used(self) -> set[str]:
        """Views of the logs that it reads or writes."""
        return {*self.views, *map(view_of, self.logs)}

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


@dataclass(slots=True)
class _Account:
    """One account: who is in it, what it gives to others, and what it has from them."""

    name: str
    users: list[str] = field(default_factory=list)
    settings: tuple[str, ...] = ()
    exports: dict[str, list[str]] = field(default_factory=dict)
    """What is given, in the server's words, to the accounts that have it."""

    imports: list[str] = field(default_factory=list)

    def text(self) -> Iterator[str]:
        """The block of the server's configuration."""
        yield f"  {self.name} {{"
        yield from (f"    {line}" for line in self.settings)
        if self.users:
            yield from ("    users: [", *self.users, "    ]")
        if self.exports:
            given = (
                f"      {{ {what}, accounts: [{', '.join(to)}] }}"
                for what, to in self.exports.items()
            )
            yield from ("    exports: [", *given, "    ]")
        if self.imports:
            yield from ("    imports: [", *(f"      {line}" for line in self.imports), "    ]")
        yield "  }"


class _Accounts:
    """The `accounts` block while it is being written: an import always has its export."""

    def __init__(self) -> None:
        self._all: dict[str, _Account] = {}

    def add(self, name: str, *, streams: bool = False) -> _Account:
        """The account of this name; without `streams` it has no JetStream of its own."""
        own = ("jetstream: enabled",) if streams else (f'mappings: {{ "{API}.>": "{OWN_API}.>" }}',)
        return self._all.setdefault(name, _Account(name, settings=own))

    def add_system(self) -> None:
        """Let others import requests to the servers themselves. Nobody is in that account."""
        self._all[SYSTEM_ACCOUNT] = _Account(SYSTEM_ACCOUNT)

    def serve(self, owner: str, subject: str, to: str, *, local: str | None = None) -> None:
        """Let the account `to` send requests to `subject` in `owner`, under the name `local`."""
        what = f"service: {_quoted(subject)}{_many_answers(subject)}"
        self._all[owner].exports.setdefault(what, []).append(to)
        source = f"service: {{ account: {owner}, subject: {_quoted(subject)} }}"
        renamed = "" if local in {None, subject} else f", to: {_quoted(str(local))}"
        self._all[to].imports.append(f"{{ {source}{renamed} }}")

    def send(self, owner: str, subject: str, to: str, *, local: str) -> None:
        """Let the account `to` hear what is published to `subject` in `owner`, under the name `local`."""
        self._all[owner].exports.setdefault(f"stream: {_quoted(subject)}", []).append(to)
        source = f"stream: {{ account: {owner}, subject: {_quoted(subject)} }}"
        self._all[to].imports.append(f"{{ {source}, to: {_quoted(local)} }}")

    def text(self) -> str:
        """The whole block."""
        lines = (line for account in self._all.values() for line in account.text())
        return "\n".join(["accounts {", *lines, "}", ""])


def _many_answers(subject: str) -> str:
    """A pull, a direct read and what all services or servers answer: everything else has one answer."""
    many = (f"{API}.CONSUMER.MSG.NEXT.", f"{API}.DIRECT.GET.", "$SRV.", f"{SERVERS}PING.")
    return ", response_type: stream" if subject.startswith(many) else ""


def hub_configuration(
    keys: Mapping[str, str],
    *,
    spokes: Sequence[str],
    cluster: str = HUB,
    former: Mapping[str, str] | None = None,
) -> str:
    """The users of a hub and its spokes, as a block that `server.conf` includes: each has its key.

    The streams are in an account of their own, with those who declare and repair them. Every other user has
    an account, and imports into it the requests that it may make, by their exact subjects. The server answers
    into the account of whoever asks: nobody has it write where others read.

    `keys`: name of each user to its public key; a spoke's is ``spoke-<name>``. `former`: the same of users
    whose key is being rotated: both are taken. Raises KeyError without a key, ValueError for a name that is
    none.
    """
    former = former or {}
    everybody = rights_of(spokes=spokes, cluster=cluster)  # Raises for names that are none.
    users = {name: everybody[name] for name in rights_of(cluster=cluster)}
    of_spokes = [rights for name, rights in everybody.items() if name not in users]
    allowed = permissions(users, keys=keys, spokes=of_spokes)
    before = permissions(users, keys={**keys, **former}, spokes=of_spokes)
    found = _Accounts()
    found.add(HUB_ACCOUNT, streams=True)
    for name, rights in users.items():
        account = found.add(_home(name, rights), streams=rights.lives_with_streams)
        own = not rights.lives_with_streams
        account.users += _user(
            name, allowed[name].server_configuration(own_account=own), keys[name]
        )
        if name in former:
            text = before[name].server_configuration(own_account=own)
            account.users += _user(name, text, former[name])
    found.add_system()
    for name, rights in users.items():
        for subject in rights.asks:
            if subject.startswith(SERVERS):
                found.serve(SYSTEM_ACCOUNT, subject, _home(name, rights))
        if not rights.lives_with_streams:
            _import_streams(found, name.upper(), rights, allowed[name])
        for other, theirs in users.items():
            for subject in theirs.answers:
                if _asks(rights, subject) and _home(name, rights) != other.upper():
                    found.serve(other.upper(), subject, _home(name, rights))
    keeper = next(name for name, rights in users.items() if f"{GATEWAY}.*.>" in rights.answers)
    _add_spokes(found, _spoke_accounts(spokes, keys, former), keeper.upper())
    head = "# Made by `sluice bus permissions`: change deploy/nats/permissions.yaml, and make it again."
    return f"{head}\n{found.text()}"


def _spoke_accounts(
    spokes: Sequence[str], keys: Mapping[str, str], former: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Each spoke with account and proof of its key, and of its former one while both are taken."""
    for spoke in spokes:
        user = f"spoke-{spoke}"
        for key in (keys[user], *([former[user]] if user in former else [])):
            yield spoke, _account(spoke, key), f"nkey: {key}"


def _home(user: str, rights: Rights) -> str:
    return HUB_ACCOUNT if rights.lives_with_streams else user.upper()


def _asks(rights: Rights, subject: str) -> bool:
    """Whether this user sends requests to `subject`. Only spokes speak at the door."""
    if rights.everything:
        return not subject.startswith(GATEWAY)
    return any(covers(one, subject) for one in rights.asks)


def _import_streams(found: _Accounts, account: str, rights: Rights, allowed: Permissions) -> None:
    asked = set(rights.asks)
    for subject in prune(tuple(one for one in allowed.publish if one not in asked)):
        local = f"{OWN_API}{subject.removeprefix(API)}" if subject.startswith(API) else subject
        found.serve(HUB_ACCOUNT, subject, account, local=local)
    for subject in rights.listens:
        found.send(HUB_ACCOUNT, f"{LIVE}.{subject}", account, local=subject)
    if rights.renews:
        found.send(HUB_ACCOUNT, LEADER_ELECTED, account, local=LEADER_ELECTED)
    for subject in hints_of(rights, load().logs):
        found.send(HUB_ACCOUNT, subject, account, local=subject)


def accounts(hub_users: str, spokes: Mapping[str, str]) -> str:
    """An `accounts` block where the hub's users share the account of the streams, and spokes have their own.

    `hub_users`: what stands between the brackets of `users`. `spokes`: name to how its user proves itself,
    as ``nkey: U…`` or ``user: east, password: …``. Raises ValueError for a name that is none.
    """
    found = _Accounts()
    found.add(HUB_ACCOUNT, streams=True).users.append(hub_users)
    _add_spokes(found, [(s, _account(s), proof) for s, proof in spokes.items()], HUB_ACCOUNT)
    return found.text()


def _add_spokes(found: _Accounts, spokes: Iterable[tuple[str, str, str]], keeper: str) -> None:
    """`spokes`: name, account and proof of each. `keeper`: the account that keeps the door."""
    for spoke, name, proof in spokes:
        rights = spoke_rights(spoke)
        token = subjects.encode(spoke)
        account = found.add(name)
        account.users.append(f"      {{ {proof}, {_BY_CLIENT_OR_LEAF} }}")
        account.settings += (SPOKE_LIMITS,)
        for asked in _ASKED:
            local = f"{OWN_API}.{asked}"
            found.serve(keeper, f"{GATEWAY}.{token}.{asked}", name, local=local)
        for subject in rights.writes:
            found.serve(keeper, f"{GATEWAY}.{token}.{WRITE}.{subject}", name, local=subject)
        for subject, local in _given(spoke_access(token)):
            found.serve(HUB_ACCOUNT, subject, name, local=local)


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
            f'mappings {{ "{API}.>": "{OWN_API}.>" }}',
            f"leafnodes {{ reconnect: 1s, remotes: [ {{ url: {_quoted(url)}{named} }} ] }}",
            "",
        ]
    )


def _given(access: SpokeAccess) -> Iterator[tuple[str, str]]:
    """What one spoke has of the streams' account: the subject there, and in the spoke's account."""
    for subject in access.leases:
        yield subject, subject
    consumers = [name for names in access.durables.values() for name in names]
    for name in (*consumers, *access.places):
        pull = f"CONSUMER.MSG.NEXT.*.{name}"
        yield f"{API}.{pull}", f"{OWN_API}.{pull}"
    for name in consumers:
        for form in ACKNOWLEDGED:
            subject = form.format(stream="*", durable=name)
            yield subject, subject


def _user(name: str, allowed: str, key: str) -> Iterator[str]:
    yield from (f"      # {name}", "      {", f"        nkey: {key}", f"        {_BY_CLIENT}")
    yield "        permissions: {"
    yield from (f"          {line}" for line in allowed.splitlines())
    yield from ("        }", "      }")


def _account(spoke: str, key: str = "") -> str:
    """The account of one key of a spoke: it is there as long as the key is accepted."""
    name = f"SPOKE-{subjects.encode(spoke)}"
    return f"{name}-{key[-KEY_SHOWN:]}" if key else name


def _quoted(text: str) -> str:
    return f'"{text}"'
