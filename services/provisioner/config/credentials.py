"""Credentials from mounted secrets: one folder for each secret, one file for each key.

Files are read at each use, so that renewed credentials take effect at once. Credentials never reach a log.
"""

from pathlib import Path


class SecretError(LookupError):
    """A secret or key is missing. The message begins as in multi-platform-controller: users search for it."""

    def __init__(self, secret: str, key: str) -> None:
        super().__init__(
            "failed to get SSH secret, system may not be configured correctly: "
            f"secret '{secret}' has no key '{key}'"
        )


class Secrets:
    """The folder of mounted secrets."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` None: there are no secrets."""
        self._folder = folder

    def read(self, secret: str, *keys: str) -> bytes:
        """The content of the first of `keys` that exists. Raises `SecretError` if none does."""
        for key in keys:
            found = self.find(secret, key)
            if found is not None:
                return found
        raise SecretError(secret, " or ".join(keys))

    def find(self, secret: str, key: str) -> bytes | None:
        """The content of one key of a secret; None if there is no such secret or key."""
        plain = not any(part in {"", ".", ".."} or "/" in part for part in (secret, key))
        if self._folder is None or not plain:
            return None
        path = self._folder / secret / key
        return path.read_bytes() if path.is_file() else None
