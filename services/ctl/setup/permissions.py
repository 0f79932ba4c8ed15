"""`sluice bus permissions`: keys for the users of NATS, and the server's configuration."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from services.ctl.setup.nats_files import context
from shared.bus.admin.accounts import hub_configuration
from shared.bus.admin.permissions import HUB, rights_of
from shared.bus.streams import CatalogueError
from shared.runtime.command import CommandError
from shared.settings.access import LOCAL_NATS, OPEN, Access, new_key, public_key

NAMESPACE: Final = "sluicegate"
CONFIG_MAP: Final = "nats-permissions"
FILE: Final = "permissions.conf"
"""Key of that ConfigMap; `deploy/nats/authorized.conf` includes it by this name."""

SEED: Final = "nkey"
"""Key of each Secret."""


def key_file(folder: Path, user: str) -> Path:
    """The file with the seed of a user."""
    return folder / f"{user}.nk"


def secret_of(user: str) -> str:
    """The Secret with the seed of a user."""
    return f"nats-user-{user}"


def _former_file(folder: Path, user: str) -> Path:
    """The file with the public key that a user had before its key was rotated."""
    return folder / f"{user}.former"


def rotate_key(folder: Path, user: str) -> None:
    """Make another key for a user; the former one is taken as well until `retire_key`.

    Raises `CommandError` for a user without a key, and while its former key is still taken.
    """
    path, former = key_file(folder, user), _former_file(folder, user)
    if not path.exists():
        raise CommandError("--rotate", f"{path}: {user} has no key in this folder")
    if former.exists():
        hint = f"end that with --retire {user}, after all its processes use the present key"
        raise CommandError("--rotate", f"{former}: the key of {user} is being rotated", hint=hint)
    public = make_keys(folder, [user])[user]
    seed, _ = new_key()
    beside = path.with_suffix(".new")
    beside.unlink(missing_ok=True)
    beside.touch(mode=0o600)
    beside.write_text(f"{seed}\n")
    # Before the new seed is there: whoever is stopped in between has lost nothing.
    former.write_text(f"{public}\n")
    beside.replace(path)


def retire_key(folder: Path, user: str) -> None:
    """Take the former key of a user no more. Raises `CommandError` if it has none."""
    former = _former_file(folder, user)
    if not former.exists():
        raise CommandError("--retire", f"{former}: the key of {user} is not being rotated")
    former.unlink()


def make_keys(folder: Path, users: Sequence[str]) -> dict[str, str]:
    """Public key of each user; missing seeds are made. Raises `CommandError` for a malformed one."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    keys = {}
    for user in users:
        path = key_file(folder, user)
        if not path.exists():
            seed, keys[user] = new_key()
            # Created with its final mode, so that no other user can ever read it.
            path.touch(mode=0o600, exist_ok=False)
            path.write_text(f"{seed}\n")
            continue
        try:
            keys[user] = public_key(path.read_text().strip())
        except (OSError, ValueError) as error:
            raise CommandError(
                str(path), f"not the seed of an nkey: {error}", hint="delete it to make another"
            ) from error
    return keys


def rendered(
    folder: Path,
    spokes: Sequence[str],
    *,
    cluster: str = HUB,
    url: str = LOCAL_NATS,
    tls: Access = OPEN,
) -> tuple[str, list[str]]:
    """The server's configuration, and its users. Makes missing keys in `folder`.

    Beside each key it writes a context for the `nats` command, for the server at `url` with the
    certificates of `tls`.
    """
    try:
        users = list(rights_of(spokes=spokes, cluster=cluster))
    except CatalogueError as error:
        raise CommandError("permissions", str(error)) from error
    except ValueError as error:
        raise CommandError("--spoke", str(error)) from error
    keys = make_keys(folder, users)
    for user in users:
        access = replace(tls, nkey=key_file(folder, user))
        own = context(f"Sluicegate, as {user}", url=url, access=access)
        (folder / f"{user}.json").write_text(json.dumps(own, indent=2) + "\n")
    former = {
        user: _former_file(folder, user).read_text().strip()
        for user in users
        if _former_file(folder, user).exists()
    }
    return hub_configuration(keys, spokes=spokes, cluster=cluster, former=former), users


def manifests(configuration: str, folder: Path, users: Sequence[str]) -> str:
    """A ConfigMap of public keys for the server, and a Secret for each user, as YAML."""
    config_map = _object("ConfigMap", CONFIG_MAP, {"data": {FILE: configuration}})
    secrets = [
        _object(
            "Secret", secret_of(user), {"stringData": {SEED: key_file(folder, user).read_text()}}
        )
        for user in users
    ]
    return yaml.safe_dump_all([config_map, *secrets], sort_keys=False)


def _object(kind: str, name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **content}
