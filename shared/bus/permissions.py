"""What a spoke may do on the bus: from `deploy/nats/permissions.yaml` to the server's configuration."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from shared.bus.streams import DATA, view_of
from shared.contracts import subjects

__all__ = ["PERMISSIONS_FILE", "Permissions", "spoke_permissions"]

PERMISSIONS_FILE: Final = DATA / "permissions.yaml"

_READING: Final = (
    "$JS.API.CONSUMER.CREATE.{stream}.>",
    "$JS.API.CONSUMER.INFO.{stream}.*",
    "$JS.API.CONSUMER.DELETE.{stream}.*",
    "$JS.API.CONSUMER.MSG.NEXT.{stream}.*",
)
"""Requests by which a stream is looked at and read. None of them changes what it keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """Subjects that a user may publish to and subscribe to; nothing else."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]

    def server_configuration(self) -> str:
        """As the server's configuration has it, below `permissions`."""
        lines = []
        for name, allowed in (("publish", self.publish), ("subscribe", self.subscribe)):
            lines += [f"{name}: {{ allow: [", *(f'  "{subject}"' for subject in allowed), "] }"]
        return "\n".join(lines)


def spoke_permissions(spoke: str, *, path: Path = PERMISSIONS_FILE) -> Permissions:
    """What the watcher and the patcher of one spoke need. Raises ValueError for a name that is none."""
    token = subjects.encode(spoke)
    if token == subjects.NONE or token.startswith("="):
        raise ValueError(f"{spoke!r} is no name of a cluster")
    document = yaml.safe_load(path.read_text())["spoke"]
    reads = [stream for log in document["reads"] for stream in (log, view_of(log))]
    reading = [
        subject.format(stream=stream)
        for stream in reads
        if stream != view_of("LEASES")
        for subject in _READING
    ]
    own = [subject.replace("{spoke}", token) for subject in document["publish"]]
    return Permissions(
        publish=(*own, *reading),
        subscribe=tuple(s.replace("{spoke}", token) for s in document["subscribe"]),
    )
