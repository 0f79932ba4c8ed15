"""Configures JetStream as `deploy/nats` declares, and reports differences.

`sluice bus apply` does the first, each service at its start the second. Applying twice changes
nothing. Streams stand in `streams.yaml`, durable consumers of the hub's services in `permissions.yaml`.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, Literal

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError

from shared.bus.admin.election_retry import ElectionRetry
from shared.bus.admin.permissions import durables_of
from shared.bus.nats.jetstream_api import ApiError, Json
from shared.bus.nats.stream_drift import drift, stream_info
from shared.bus.nats.tls import refuse_plain_text
from shared.bus.nats.work.declared import differs, durable_config, found_durable, make_durable
from shared.bus.port import DeniedError, NewerFormatError, UnavailableError
from shared.bus.streams import (
    VIEW_SUFFIX,
    Catalogue,
    committed_of,
    epoch_of,
    is_log_or_view,
    load,
    newer_format,
)
from shared.contracts.messages.base import COMMITTED, EPOCH, FORMAT
from shared.settings.access import OPEN, Access

refuse_plain_text(Client)

HOW: Final = "run `sluice bus apply`"
CONNECT_SECONDS: Final = 5
AGAIN_SECONDS: Final = 0.2

Action = Literal["created", "updated", "unchanged", "rebuilt", "commit", "committed", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What was done about one stream, or one durable consumer; ``commit`` is to be done."""

    stream: str
    """Of a durable, ``<view>/<name>``."""

    action: Action
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.stream}: {self.action}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What `apply` did."""

    changes: tuple[Change, ...]

    @property
    def ok(self) -> bool:
        """Whether everything is now as declared."""
        return all(change.action != "refused" for change in self.changes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.changes))


async def apply(
    nc: Client,
    *,
    rebuild: Collection[str] = (),
    catalogue: Catalogue | None = None,
    replicas: int | None = None,
    cluster: str | None = None,
    retry: ElectionRetry | None = None,
) -> Report:
    """Create missing streams, update changed ones, report changes that are not possible.

    `cluster`: the name of a hub, whose durable consumers are made too; None: of none.

    A view that is missing while its log has messages, and each view named in `rebuild`, is made
    anew only if `rebuild` names it: the log still has the tombstones that were purged, and its
    durable consumers begin again. `replicas` None leaves existing streams as they are.

    A stream that is made is committed to the same format as the others. It changes nothing where one of
    them is committed to a newer one than ours.
    """
    retry = retry or ElectionRetry()
    made = int(datetime.now(UTC).timestamp() * 1000)
    wanted = (catalogue or load()).configs(replicas=replicas or 1)
    there = {name: await retry.ask(partial(stream_info, nc, name)) for name in wanted}
    configs = {name: found["config"] for name, found in there.items() if found is not None}
    for name, config in configs.items():
        if newer := newer_format(config):
            detail = str(NewerFormatError(name, newer, FORMAT))
            return Report(changes=(Change(stream=name, action="refused", detail=detail),))
    committed = max((int(committed_of(config) or 0) for config in configs.values()), default=0)
    changes = [
        await _apply_one(
            nc,
            name,
            _marked(config, made, committed),
            retry,
            found=there[name],
            rebuild=name in rebuild,
            replicas=replicas,
        )
        for name, config in wanted.items()
    ]
    if cluster is not None and all(change.action != "refused" for change in changes):
        changes += [
            await _apply_durable(nc, view, durable_config(name, filters), retry)
            for name, (view, filters) in durables_of(cluster).items()
        ]
    return Report(changes=tuple(changes))


async def apply_at(
    url: str,
    *,
    rebuild: Collection[str] = (),
    replicas: int | None = None,
    cluster: str | None = None,
    access: Access = OPEN,
    retry: ElectionRetry | None = None,
) -> Report:
    """Connect to `url`, `apply`, disconnect. Raises `UnavailableError` without an answer."""
    causes: list[Exception] = []
    try:
        nc = await nats.connect(
            url.split(","),
            allow_reconnect=False,
            # Without these the library tries for two minutes, and prints a traceback each time.
            max_reconnect_attempts=1,
            reconnect_time_wait=AGAIN_SECONDS,
            error_cb=partial(_note, causes),
            connect_timeout=CONNECT_SECONDS,
            name="sluice bus apply",
            **access.options(),
        )
    except (OSError, NatsError, ValueError) as error:
        raise UnavailableError(f"cannot connect: {_said([*causes, error][0])}") from error
    try:
        return await apply(nc, rebuild=rebuild, replicas=replicas, cluster=cluster, retry=retry)
    finally:
        await nc.close()


def _said(error: Exception) -> str:
    """In words: the library says only that there are no servers, where it tells why before."""
    return (error.strerror if isinstance(error, OSError) else str(error)) or repr(error)


async def _note(causes: list[Exception], error: Exception) -> None:
    """Keep it: what is raised in the end does not tell it."""
    causes.append(error)


async def _apply_one(
    nc: Client,
    name: str,
    config: Json,
    retry: ElectionRetry,
    *,
    found: Json | None,
    rebuild: bool,
    replicas: int | None,
) -> Change:
    """`config` has the metadata of a stream that is made; `found` is `STREAM.INFO` of one that is there."""
    declared = {field: value for field, value in config.items() if field != "metadata"}
    try:
        if found is None:
            if (
                name.endswith(VIEW_SUFFIX)
                and not rebuild
                and await _log_has_messages(nc, name, retry)
            ):
                detail = f"the view is gone; `--rebuild {name}` makes it anew from the log"
                return Change(stream=name, action="refused", detail=detail)
            await retry.call(nc, f"STREAM.CREATE.{name}", config)
            return Change(stream=name, action="rebuilt" if rebuild else "created")
        if rebuild:
            if not name.endswith(VIEW_SUFFIX):
                return Change(stream=name, action="refused", detail="only views can be rebuilt")
            await retry.delete(nc, name)
            # It grows also where the clock was set back meanwhile.
            epoch = max(epoch_of(config), epoch_of(found["config"]) + 1)
            metadata = config["metadata"] | {EPOCH: str(epoch)}
            await retry.call(nc, f"STREAM.CREATE.{name}", config | {"metadata": metadata})
            return Change(stream=name, action="rebuilt")
        differences = drift(declared, found["config"], replicas=replicas)
        if not differences:
            return Change(stream=name, action="unchanged")
        # Fields that we do not declare (placement, compression) are the operator's: keep them.
        merged = found["config"] | declared
        if replicas is None:
            merged["num_replicas"] = found["config"]["num_replicas"]
        await retry.call(nc, f"STREAM.UPDATE.{name}", merged)
        return Change(stream=name, action="updated", detail=differences)
    except ApiError as error:
        return Change(stream=name, action="refused", detail=str(error))


async def _apply_durable(nc: Client, view: str, config: Json, retry: ElectionRetry) -> Change:
    """A new durable begins with all that its view has."""
    stream = f"{view}/{config['name']}"
    try:
        found = await retry.ask(partial(found_durable, nc, view, config["name"]))
        if not differs(config, found):
            return Change(stream=stream, action="unchanged")
        await retry.ask(partial(make_durable, nc, view, config))
    except (ApiError, DeniedError) as error:
        return Change(stream=stream, action="refused", detail=str(error))
    return Change(stream=stream, action="created" if found is None else "updated")


def _marked(config: Json, epoch: int, committed: int) -> Json:
    """The configuration of a log or view that is made now. `committed`: to which format; 0: to none."""
    if not is_log_or_view(str(config["name"])):
        return config
    metadata = {EPOCH: str(epoch)} | ({COMMITTED: str(committed)} if committed else {})
    return config | {"metadata": metadata}


async def _log_has_messages(nc: Client, view: str, retry: ElectionRetry) -> bool:
    log = await retry.ask(partial(stream_info, nc, view.removesuffix(VIEW_SUFFIX)))
    return log is not None and log["state"]["messages"] > 0
