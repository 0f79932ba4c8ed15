"""Writes `deploy/nats/streams` and `deploy/nats/contexts`: what the stock `nats` command takes.

Run by `make contracts`, which fails where the result differs from what is committed. A stream is made by
`nats stream add NAME --config deploy/nats/streams/NAME.json` as `sluice bus apply` makes it. A context is
copied to `~/.config/nats/context`; for a server with users, `sluice bus permissions` writes one for each.
"""

import json
import sys
from pathlib import Path
from typing import Any

from shared.bus.streams import DATA, load
from shared.settings.access import LOCAL_NATS, OPEN, Access, inbox_of, public_key


def context(description: str, *, url: str = LOCAL_NATS, access: Access = OPEN) -> dict[str, Any]:
    """A context of the `nats` command: the URL and the credentials of a user."""
    found: dict[str, Any] = {"description": description, "url": url}
    paths = {
        "nkey": access.nkey, "ca": access.ca, "cert": access.certificate, "key": access.private_key
    }  # fmt: skip
    found |= {name: str(path.resolve()) for name, path in paths.items() if path is not None}
    if access.nkey is not None:
        found["inbox_prefix"] = inbox_of(public_key(access.seed()))
    return found


def files() -> dict[Path, dict[str, Any]]:
    """Each file and its content."""
    written = {
        # The schema of the `nats` command requires this field; the value is its default.
        DATA / "streams" / f"{name}.json": config | {"max_consumers": -1}
        for name, config in load().configs().items()
    }
    everybody = context("Sluicegate, where NATS knows no users: `sluice dev`, `docker compose up`")
    return written | {DATA / "contexts" / "sluicegate.json": everybody}


def main() -> int:
    """Write all files; delete those of streams that no longer exist."""
    written = files()
    for folder in {path.parent for path in written}:
        folder.mkdir(exist_ok=True)
        for old in set(folder.glob("*.json")) - written.keys():
            old.unlink()
    for path, content in written.items():
        path.write_text(json.dumps(content, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
