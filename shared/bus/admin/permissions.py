"""Permissions of users on the bus: from `deploy/nats/permissions.yaml` to configuration of nats-server.

The file speaks of what a service does (writes, reads, works, …); here is which requests of JetStream that
takes. A user of ours proves itself with an nkey: the server's configuration holds public keys only.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from shared.bus.streams import (
    DATA,
    LEADER_ELECTED,
    LEASES,
    LIVE,
    OBJECTS,
    Catalogue,
    CatalogueError,
    Log,
    load,
    view_of,
)
from shared.contracts import subjects
from shared.settings.access import inbox_of

PERMISSIONS_FILE: Final = DATA / "permissions.yaml"
API: Final = "$JS.API"
PUBLIC: Final = ("$JS.API.STREAM.INFO.*",)
"""What everybody may ask: each service checks how the streams are declared when it starts."""

HUB: Final = "hub"
ANSWERS: Final = "_R_.>"
"""Where the server lets a service answer a request from another account. An answer goes nowhere else: with
`allow_responses` it would go to any subject that the asker names, in the words of the answering service."""

OWN_API: Final = "$JS.hub.API"
"""An account without JetStream maps `$JS.API` to this, because the server answers `$JS.API` there itself. The
server weighs permissions after it has mapped a subject."""

_LOOKS: Final = (
    "$JS.API.CONSUMER.CREATE.{stream}.*",
    "$JS.API.CONSUMER.INFO.{stream}.*",
    "$JS.API.CONSUMER.DELETE.{stream}.*",
    "$JS.API.CONSUMER.MSG.NEXT.{stream}.*",
)
_SERVES: Final = (
    "$JS.API.STREAM.MSG.GET.{log}",
    "$JS.API.STREAM.MSG.GET.{view}",
    "$JS.API.CONSUMER.CREATE.{view}.*",
    "$JS.API.CONSUMER.INFO.{view}.*",
    "$JS.API.CONSUMER.DELETE.{view}.*",
    "$JS.API.CONSUMER.MSG.NEXT.{view}.*",
)
_DIRECT_LOOKS: Final = ("$JS.API.DIRECT.GET.{stream}",)

ACKNOWLEDGED: Final = (
    "$JS.ACK.{stream}.{durable}.*.*.*.*.*",
    # With domain and account, and perhaps one token more, as newer servers have it.
    "$JS.ACK.*.*.{stream}.{durable}.*.*.*.*.>",
)
"""Where the work of a durable is acknowledged: behind its name stand five tokens, or six.

With a ``>`` behind the name the long form would cover the short form of another's durable, with the own name
in the place of a sequence. The server does not look at that before it gives `+NXT` the next work.
"""

_PULLS: Final = (
    "$JS.API.CONSUMER.INFO.{stream}.{durable}",
    "$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}",
    *ACKNOWLEDGED,
)
_NOT_OURS: Final = (
    "$JS.API.CONSUMER.*.{stream}.{durable}",
    "$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}",
)
"""A pull from a foreign durable steals its work; its deletion makes it start from the beginning."""


class Rights(BaseModel):
    """What one user does, in the words of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    replays: Literal["all"] | None = None
    """Reads the logs too, not only their views."""

    consumers: bool = True
    """Makes consumers to read with. Who may can make one that pushes where its user may not send."""

    works: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
    """Log to its durable consumers, each with its filters."""

    purges: tuple[str, ...] = ()
    sweeps: tuple[str, ...] = ()
    trims: tuple[str, ...] = ()
    renews: Literal["all"] | None = None
    """Has another server lead the view of any log, where that view is cut off from its log."""

    leases: tuple[str, ...] = ()
    bodies: Literal["keep", "read"] | None = None
    answers: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    listens: tuple[str, ...] = ()
    deaf: tuple[str, ...] = ()
    api: tuple[str, ...] = ()
    """Requests below `$JS.API`, for people."""

    serves: tuple[str, ...] = ()
    """Logs about which it asks JetStream for spokes, and to which it writes for them."""

    relays: tuple[str, ...] = ()
    """Subjects of spokes to which it publishes what they write. They follow from the names of the spokes."""

    everything: bool = False
    declares: bool = False
    """Declares the streams, and therefore has its place in their account, as who may do everything."""

    @property
    def lives_with_streams(self) -> bool:
        """Whether this user is in the account that holds the streams. All others have one of their own."""
        return self.everything or self.declares

    def for_cluster(self, cluster: str) -> "Rights":
        """With the name filled in. Raises ValueError for a name that is none."""
        token = subjects.encode(cluster)
        if token == subjects.NONE or token.startswith("="):
            raise ValueError(f"{cluster!r} is no name of a cluster")
        text = self.model_dump_json().replace("{cluster}", token)
        return Rights.model_validate_json(text)


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    services: dict[str, Rights]
    spoke: Rights
    people: dict[str, Rights]


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """Subjects that a user may publish to and subscribe to; nothing else."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    never: tuple[str, ...] = ()
    """Subjects that it may not publish to although a wildcard of `publish` covers them."""

    unheard: tuple[str, ...] = ()
    """Subjects that it is not sent although a wildcard of `subscribe` covers them."""

    responds: bool = False
    """Whether it answers requests of other accounts."""

    def server_configuration(self, *, own_account: bool) -> str:
        """As the server's configuration has it, below `permissions`. `own_account`: without the streams."""
        named = _in_own_account if own_account else tuple
        answers = (ANSWERS,) if self.responds else ()
        lines = ["publish: {", *_listed("allow", named((*self.publish, *answers)))]
        lines += _listed("deny", named(self.never)) if self.never else []
        lines += ["}", "subscribe: {", *_listed("allow", self.subscribe)]
        lines += _listed("deny", self.unheard) if self.unheard else []
        lines.append("}")
        return "\n".join(lines)


def _in_own_account(names: tuple[str, ...]) -> tuple[str, ...]:
    """What the server sees of these subjects once the account's mapping has changed them."""
    return tuple(
        f"{OWN_API}{subject.removeprefix(API)}" if subject.startswith(f"{API}.") else subject
        for subject in names
    )


def _listed(what: str, allowed: tuple[str, ...]) -> list[str]:
    return [f"  {what}: [", *(f'    "{subject}"' for subject in allowed), "  ]"]


@lru_cache(maxsize=8)
def _read(path: Path) -> _File:
    try:
        return _File.model_validate(yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise CatalogueError(path, error) from error


def rights_of(
    *, spokes: Collection[str] = (), cluster: str = HUB, path: Path = PERMISSIONS_FILE
) -> dict[str, Rights]:
    """Name of each user to what it does. A spoke's user has the spoke's name, before it ``spoke-``.

    Raises `CatalogueError` for a file that is not as it must be, ValueError for a name that is none.
    """
    file = _read(path)
    users = {name: rights.for_cluster(cluster) for name, rights in file.services.items()}
    users |= {name: rights.for_cluster(cluster) for name, rights in file.people.items()}
    for spoke in spokes:
        if spoke == cluster:
            raise ValueError(f"{spoke!r} is the cluster itself, and no spoke of it")
        users[f"spoke-{spoke}"] = file.spoke.for_cluster(spoke)
    relays = tuple(subject for spoke in spokes for subject in users[f"spoke-{spoke}"].writes)
    for name, rights in users.items():
        if rights.serves:
            users[name] = Rights(**{**dict(rights), "relays": relays})
    return users


def spoke_writes(*, path: Path = PERMISSIONS_FILE) -> tuple[str, ...]:
    """Filters of the subjects that a spoke writes, with ``{cluster}`` in the place of its name."""
    return _read(path).spoke.writes


def spokes_among(allowed: Collection[str], *, path: Path = PERMISSIONS_FILE) -> set[str]:
    """Names, as subjects have them, of the spokes to whose subjects somebody may publish."""
    found = set()
    for subject in allowed:
        token = (*subject.split("."), "", "", "")[2]
        if subject in {one.replace("{cluster}", token) for one in spoke_writes(path=path)}:
            found.add(token)
    return found


def reads_of(service: str, *, path: Path = PERMISSIONS_FILE) -> tuple[str, ...] | None:
    """Logs that a user of the hub may inspect; None for one that the file does not know."""
    file = _read(path)
    rights = file.services.get(service) or file.people.get(service)
    return None if rights is None else rights.reads


def renews_of(service: str, *, path: Path = PERMISSIONS_FILE) -> tuple[str, ...]:
    """Logs whose views a user of the hub may have led by another server."""
    rights = _read(path).services.get(service)
    return () if rights is None or rights.renews is None else tuple(load().logs)


def writes_of(
    service: str, cluster: str, *, path: Path = PERMISSIONS_FILE
) -> tuple[str, ...] | None:
    """Filters of the subjects that a user of the hub may write; None for one that the file does not know."""
    rights = _read(path).services.get(service)
    return None if rights is None else rights.for_cluster(cluster).writes


def consumers_of(service: str, *, path: Path = PERMISSIONS_FILE) -> bool:
    """Whether a user of the hub makes consumers to read with; True for one that the file does not know."""
    file = _read(path)
    rights = file.services.get(service) or file.people.get(service)
    return rights is None or rights.consumers


def permissions(
    users: Mapping[str, Rights],
    *,
    keys: Mapping[str, str] | None = None,
    catalogue: Catalogue | None = None,
    spokes: Collection[Rights] = (),
) -> dict[str, Permissions]:
    """What each user may publish and hear. `keys`: its public key, for its inbox; without: any inbox.

    `spokes`: rights of those whose durables belong to none of `users`.
    """
    logs = (catalogue or load()).logs
    owners = [each for rights in users.values() for each in _durables(rights)]
    theirs = [each for rights in spokes for each in _durables(rights)]
    found = {}
    for name, rights in users.items():
        inbox = f"{inbox_of((keys or {}).get(name))}.>"
        if rights.everything:
            found[name] = Permissions(publish=(">",), subscribe=(">",))
            continue
        writes = [
            log
            for log, each in logs.items()
            if any(_under(subject, each.subjects) for subject in rights.writes)
        ]
        found[name] = Permissions(
            publish=tuple(dict.fromkeys(_publish(rights, writes))),
            subscribe=tuple(
                dict.fromkeys(
                    [
                        inbox,
                        *rights.answers,
                        *rights.listens,
                        *_leases(rights),
                        *hints_of(rights, logs),
                        *([LEADER_ELECTED] if rights.renews else ()),
                    ]
                )
            ),
            never=tuple(dict.fromkeys(_never(rights, owners, theirs))),
            unheard=rights.deaf,
            responds=bool(rights.answers),
        )
    return found


def hints_of(rights: Rights, logs: Mapping[str, Log]) -> tuple[str, ...]:
    """What it hears of the logs that it reads without a consumer: that there is something new."""
    read = () if rights.consumers else rights.reads
    return tuple(
        f"{LIVE}.{subject}" for log in read if logs[log].live for subject in logs[log].subjects
    )


def _publish(rights: Rights, writes: list[str]) -> Iterator[str]:
    yield from rights.writes
    yield from rights.relays
    yield from _leases(rights)
    yield from rights.asks
    yield from PUBLIC
    yield from (f"$JS.API.{what}" for what in rights.api)
    if rights.leases:
        yield f"$JS.API.STREAM.MSG.GET.{LEASES}"
    for log in writes:
        # After a lost acknowledgement a fenced publisher reads the last message.
        yield f"$JS.API.STREAM.MSG.GET.{log}"
        # After a power cut it fills up the log with what its view has.
        yield f"$JS.API.STREAM.MSG.GET.{view_of(log)}"
    for log in rights.reads:
        for stream in (view_of(log), log):
            yield f"$JS.API.STREAM.MSG.GET.{stream}"
            if stream != log or rights.replays:
                looks = _LOOKS if rights.consumers else _DIRECT_LOOKS
                yield from (subject.format(stream=stream) for subject in looks)
    for log in rights.serves:
        yield from (subject.format(log=log, view=view_of(log)) for subject in _SERVES)
    for log, durables in rights.works.items():
        for durable in durables:
            yield from (subject.format(stream=view_of(log), durable=durable) for subject in _PULLS)
    for log in (*rights.purges, *rights.sweeps):
        yield f"$JS.API.STREAM.PURGE.{view_of(log)}"
    for log in rights.sweeps:
        yield f"$JS.API.CONSUMER.LIST.{view_of(log)}"
    for log in rights.trims:
        yield f"$JS.API.STREAM.PURGE.{log}"
    if rights.renews:
        yield from (f"$JS.API.STREAM.LEADER.STEPDOWN.{view_of(log)}" for log in load().logs)
    if rights.bodies:
        yield f"$JS.API.STREAM.MSG.GET.OBJ_{OBJECTS}"
    if rights.bodies == "keep":
        yield from (f"$O.{OBJECTS}.C.>", f"$O.{OBJECTS}.M.>", f"$JS.API.STREAM.PURGE.OBJ_{OBJECTS}")


def _leases(rights: Rights) -> list[str]:
    return [subjects.join("lease", name) for name in rights.leases]


def durables_of(
    cluster: str, *, path: Path = PERMISSIONS_FILE
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The durable consumers of the users of a hub: name to view and filters.

    Raises `CatalogueError`, and ValueError for a name that is none.
    """
    return {
        durable: (view_of(log), filters)
        for rights in rights_of(cluster=cluster, path=path).values()
        for log, durables in rights.works.items()
        for durable, filters in durables.items()
    }


def _never(
    rights: Rights, owners: list[tuple[str, str]], theirs: list[tuple[str, str]]
) -> Iterator[str]:
    """`theirs`: durables of spokes. Who serves spokes makes and deletes these, but pulls from none."""
    if not rights.consumers:
        return
    reads = {view_of(log) for log in (*rights.reads, *rights.serves)}
    own = set(_durables(rights))
    for stream, durable in owners:
        if stream in reads and (stream, durable) not in own:
            yield from (subject.format(stream=stream, durable=durable) for subject in _NOT_OURS)
    for stream, durable in theirs:
        if stream in reads:
            foreign = _NOT_OURS[1:] if rights.serves else _NOT_OURS
            yield from (subject.format(stream=stream, durable=durable) for subject in foreign)


def _durables(rights: Rights) -> Iterator[tuple[str, str]]:
    """View and name of each durable of its own."""
    for log, names in rights.works.items():
        yield from ((view_of(log), durable) for durable in names)


def _under(subject: str, filters: list[str]) -> bool:
    """Whether a log with these subjects stores messages to `subject`."""
    return any(subject.split(".")[:2] == one.split(".")[:2] for one in filters)
