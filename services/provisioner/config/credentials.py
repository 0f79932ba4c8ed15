"""Credentials, as files: one folder for each secret of the host configuration, one file for each key.

They are mounted; who renews them renews the files, so they are read each time. Never in a log.
"""

from pathlib import Path

__all__ = ["SecretError", "Secrets"]


class SecretError(LookupError):
    """It is not there. People search for the first half of this sentence."""

    def __init__(self, secret: str, key: str) -> None:
        super().__init__(
            "failed to get SSH secret, system may not be configured correctly: "
            f"secret '{secret}' has no key '{key}'"
        )


class Secrets:
    """The folder of mounted secrets."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` None: there are none."""
        self._folder = folder

    def read(self, secret: str, *keys: str) -> bytes:
        """The first of `keys` that there is. Raises `SecretError`."""
        for key in keys:
            found = self.find(secret, key)
            if found is not None:
                return found
        raise SecretError(secret, " or ".join(keys))

    def find(self, secret: str, key: str) -> bytes | None:
        """One key of a secret; None if it is not there."""
        plain = not any(part in {"", ".", ".."} or "/" in part for part in (secret, key))
        if self._folder is None or not plain:
            return None
        path = self._folder / secret / key
        return path.read_bytes() if path.is_file() else None
