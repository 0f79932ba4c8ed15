"""Clusters that the logs speak of."""

from collections.abc import Iterable

from services.ctl.get.snapshot import Snapshot
from shared.bus.stream_reader import StreamReader
from shared.contracts.subjects import Stream, synced_filter
from shared.runtime.command import CommandError, Exit
from shared.runtime.suggestions import one_of


def check_cluster(cluster: str, known: Iterable[str]) -> None:
    """Raise `CommandError` if no watcher has listed this cluster, though others have been listed."""
    names = set(known)
    if names and cluster not in names:
        raise CommandError(
            f"--cluster {cluster}",
            f"no watcher has listed such a cluster; {one_of(cluster, names)}",
            status=Exit.WRONG_INPUT,
        )


async def refuse_unknown_cluster(reader: StreamReader, cluster: str) -> None:
    """`check_cluster` with what the logs hold."""
    snapshot = Snapshot()
    for seen in await reader.now(Stream.OBSERVED, synced_filter()):
        snapshot.apply(seen)
    check_cluster(cluster, snapshot.synced)
