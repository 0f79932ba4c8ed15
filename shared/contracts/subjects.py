"""Where each message is published. The positions of the tokens are fixed.

``sluice.<what>.<cluster>.<namespace>.<name>[.<detail>]``, so ``nats sub 'sluice.*.*.team-a.>'``
follows a namespace. Names never go raw into a subject: `*`, `>`, blanks and dots would change its
meaning, and a subject near 4 KiB makes the server drop the connection for good.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

from shared.contracts.kube.kinds import Kind
from shared.contracts.refs import WorkloadRef

ROOT: Final = "sluice"


class Stream(StrEnum):
    """The logs of JetStream, as `deploy/nats/streams.yaml` declares them; each has a view."""

    OBSERVED = "OBSERVED"
    WORKLOADS = "WORKLOADS"
    ADMISSIONS = "ADMISSIONS"
    CHECKS = "CHECKS"
    DISPATCHES = "DISPATCHES"
    SPOKES = "SPOKES"
    HOSTS = "HOSTS"
    KEYS = "KEYS"
    OUTCOMES = "OUTCOMES"
    QUEUES = "QUEUES"
    TRACES = "TRACES"
    DEAD = "DEAD"


_SORTS: Final = {
    Stream.OBSERVED: ("observed",),
    Stream.WORKLOADS: ("workload",),
    Stream.ADMISSIONS: ("admission", "term"),
    Stream.CHECKS: ("check",),
    Stream.DISPATCHES: ("dispatch", "copy", "home"),
    Stream.SPOKES: ("spoke", "beat", "standing", "pair"),
    Stream.HOSTS: ("host", "platform", "offer", "seal"),
    Stream.KEYS: ("key",),
    Stream.OUTCOMES: ("outcome",),
    Stream.QUEUES: ("queue", "cohort", "history"),
    Stream.TRACES: ("traced",),
    Stream.DEAD: ("dead", "retry"),
}
"""The second tokens of the subjects of each log; first the one that the log is named after."""

STREAM_OF: Final[Mapping[str, Stream]] = {
    sort: stream for stream, sorts in _SORTS.items() for sort in sorts
}
"""The second token of a subject, as `message_sort` returns it, to the log of that subject."""

SORT_OF: Final[Mapping[str, str]] = {stream: sorts[0] for stream, sorts in _SORTS.items()}
"""A log to the second token of the subjects that it is named after: ``WORKLOADS`` to ``workload``."""

NONE: Final = "_"
"""Stands for "no namespace" or "no name"."""

OBSERVED_TEMPLATE: Final = f"{ROOT}.observed.{{cluster}}.{{namespace}}.{{name}}.{{resource}}"
ADMISSION_TEMPLATE: Final = f"{ROOT}.admission.{{cluster}}.{{namespace}}.{{name}}"
CHECK_TEMPLATE: Final = f"{ROOT}.check.{{cluster}}.{{namespace}}.{{name}}.{{check}}.{{service}}"
DISPATCH_TEMPLATE: Final = f"{ROOT}.dispatch.{{spoke}}.{{namespace}}.{{name}}"
"""Attribute `messaging.destination.template` of spans about messages with such a subject."""

RULING: Final = "Sluice-Term"
"""Header of a decision: ``<epoch>.<term>`` of its leader, so that readers need not decode to drop it."""

PROJECTION_LEASE: Final = "classifier-projection"
"""Lease of the classifier that publishes workloads; every other replica of it answers the webhook."""

WORKLOAD_TOKENS: Final = 5
"""``sluice.<what>.<cluster>.<namespace>.<name>``."""

OBSERVED_TOKENS: Final = 6
"""``sluice.observed.<cluster>.<namespace>.<name>.<kind>``."""

NAME_BYTES_MAX: Final = 253
"""The longest name that Kubernetes accepts."""

SUBJECT_BYTES_MAX: Final = 2048
"""Half of what the server's control line holds."""

_SYNCED: Final = "synced"
_SYNCED_END: Final = f".{_SYNCED}"
_DNS_1123: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_ESCAPE: Final = "="


class UnusableNameError(ValueError):
    """No Kubernetes object can have this name, so refusing it loses nothing."""


class NameTooLongError(UnusableNameError):
    """The name is longer than any of Kubernetes."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"name {name[:40]!r}… has {len(name.encode())} bytes; "
            f"Kubernetes allows {NAME_BYTES_MAX}"
        )


@lru_cache(maxsize=4_096)
def encode(name: str | None) -> str:
    """One subject token for `name`; `decode` gives it back. Raises `UnusableNameError`.

    A DNS-1123 name keeps its letters and has its dots turned into underscores, which such a name
    cannot contain. Anything else becomes ``=`` and base32.
    """
    if name is None or name == "":
        return NONE
    try:
        raw = name.encode()
    except UnicodeEncodeError as error:
        raise UnusableNameError(f"name {name[:40]!r}: no UTF-8") from error
    if len(raw) > NAME_BYTES_MAX:
        raise NameTooLongError(name)
    if _DNS_1123.fullmatch(name):
        return name.replace(".", NONE)
    return _ESCAPE + base64.b32encode(raw).decode().rstrip("=").lower()


def decode(token: str) -> str | None:
    """The name behind `token`; None for "no name". Raises ValueError for an invalid token."""
    if token == NONE:
        return None
    if not token.startswith(_ESCAPE):
        return token.replace(NONE, ".")
    body = token[1:].upper()
    try:
        return base64.b32decode(body + "=" * (-len(body) % 8)).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{token!r} is not a subject token of ours") from error


def join(what: str, *names: str | None, detail: str | None = None) -> str:
    """``sluice.<what>.<names…>[.<detail>]``; names are encoded, `what` and `detail` are not."""
    tokens = [ROOT, what, *(encode(name) for name in names)]
    if detail is not None:
        tokens.append(detail)
    subject = ".".join(tokens)
    assert len(subject) <= SUBJECT_BYTES_MAX, f"subject of {len(subject)} bytes: {subject[:80]}…"
    return subject


TERM_SUBJECT: Final = join("term", "quota")
"""The subject of every `Term`, ``sluice.term.quota``: the view has one."""


def observed_filter(kind: Kind, cluster: str | None = None, namespace: str | None = None) -> str:
    """A subject filter for every object of `kind`, in one cluster and namespace or in all."""
    places = [
        "*" if cluster is None else encode(cluster),
        "*" if namespace is None or not kind.namespaced else encode(namespace),
    ]
    return f"{ROOT}.observed.{'.'.join(places)}.*.{kind.detail}"


def subject_filter(what: str, cluster: str | None = None) -> str:
    """A subject filter for every message of one sort, in one cluster or in all: ``sluice.host.>``."""
    return f"{ROOT}.{what}.>" if cluster is None else f"{ROOT}.{what}.{encode(cluster)}.>"


def check_filters(cluster: str, service: str) -> list[str]:
    """Subject filters for the answers of one service to admission checks, earlier releases included."""
    every = f"{ROOT}.check.{encode(cluster)}.*.*.*"
    return [every, f"{every}.{service}"]


def retry_filter(service: str, cluster: str | None = None) -> str:
    """A subject filter for the requests to a service to try dead letters again."""
    return f"{ROOT}.retry.{'*' if cluster is None else encode(cluster)}.{encode(service)}.>"


def synced_filter(cluster: str | None = None) -> str:
    """A subject filter for the `Synced` messages of one cluster, or of all."""
    place = "*" if cluster is None else encode(cluster)
    return f"{ROOT}.observed.{place}.{NONE}.{NONE}{_SYNCED_END}"


def synced_subject(cluster: str) -> str:
    """The subject of the `Synced` messages of one cluster: ``sluice.observed.<cluster>._._.synced``."""
    return join("observed", cluster, None, None, detail=_SYNCED)


def is_synced(subject: str) -> bool:
    """Whether a subject of the stream OBSERVED is that of a `Synced` message: others end in a kind."""
    return subject.endswith(_SYNCED_END)


def message_sort(subject: str) -> str:
    """The sort of message in ``sluice.<sort>.<…>``, for instance ``workload``; empty without a dot."""
    return subject.partition(".")[2].partition(".")[0]


def subject_pattern(
    what: str, cluster: str | None = None, namespace: str | None = None, name: str | None = None
) -> str:
    """A filter for ``sluice.<what>.<cluster>.<namespace>.<name>``. None matches any name, "" no name.

    >>> subject_pattern("queue", namespace="")
    'sluice.queue.*._.*'
    """
    tokens = ("*" if each is None else encode(each) for each in (cluster, namespace, name))
    return f"{ROOT}.{what}.{'.'.join(tokens)}"


def rpc_subject(service: str, question: str) -> str:
    """Where a service answers a question, for instance ``sluice.rpc.quota.explain``."""
    return f"{ROOT}.rpc.{service}.{question}"


def lease_subject(name: str) -> str:
    """Subject with the holder of a lease."""
    return f"{ROOT}.lease.{name}"


def observed_of(subject: str) -> tuple[str | None, str] | None:
    """Namespace and name in ``sluice.observed.<cluster>.<namespace>.<name>.<kind>``.

    None: it is another subject.
    """
    tokens = subject.split(".")
    if len(tokens) != OBSERVED_TOKENS or tokens[1] != "observed":
        return None
    try:
        return decode(tokens[3]), decode(tokens[4]) or ""
    except ValueError:
        return None


def workload_of(subject: str, what: str | None = None) -> WorkloadRef | None:
    """The workload in ``sluice.<what>.<cluster>.<namespace>.<name>``; None: it is another subject."""
    tokens = subject.split(".")
    if len(tokens) != WORKLOAD_TOKENS or what not in {None, tokens[1]}:
        return None
    try:
        cluster, namespace, name = map(decode, tokens[2:])
    except ValueError:
        return None
    return WorkloadRef(cluster or "", namespace or "", name or "")
