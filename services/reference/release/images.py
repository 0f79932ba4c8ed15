"""Digests of the images that a release builds on, asked of their registries.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md, and the tokens of
https://distribution.github.io/distribution/spec/auth/token/.
"""

import hashlib
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from services.reference.release.locked import ROOT

TIMEOUT_SECONDS: Final = 30.0
_BYTES_MAX: Final = 4 << 20
"""The largest manifest that a registry must take."""

PLATFORMS: Final = frozenset({"linux/amd64", "linux/arm64"})
"""What a release is built for, so what each image of others must be there for."""

INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
"""Media types of an image for several platforms."""

_QUOTED_MAX: Final = 80
"""Characters of another answer that are quoted."""

_SCHEMA_VERSION: Final = 2
_DOCKER: Final = "docker.io"
_DOCKER_HOST: Final = "registry-1.docker.io"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_CHALLENGE: Final = re.compile(r'(\w+)="([^"]*)"')
_SOURCES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("deploy/image/Dockerfile", re.compile(r"^ARG PYTHON_IMAGE=(\S+)$", re.MULTILINE)),
    ("deploy/kubernetes/base/nats/server.yaml", re.compile(r"^ +image: (\S+)$", re.MULTILINE)),
    ("services/patcher/settings.py", re.compile(r'^ +anchor_image: str = "(\S+)"$', re.MULTILINE)),
)
"""Files of ours that name an image of somebody else, and where they name it."""


class ImageError(Exception):
    """A digest cannot be resolved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A tag of an image in a registry."""

    registry: str
    repository: str
    tag: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``registry/repository:tag``. Raises `ImageError` for a text that names no registry or tag."""
        registry, slash, rest = text.partition("/")
        repository, colon, tag = rest.rpartition(":")
        if not (slash and colon and repository) or not re.search(r"[.:]|^localhost$", registry):
            raise ImageError(f"{text}: must be <registry>/<repository>:<tag>")
        return cls(registry=registry, repository=repository, tag=tag)

    def __str__(self) -> str:
        return f"{self.registry}/{self.repository}:{self.tag}"


def base_images(root: Path = ROOT) -> list[Image]:
    """Return the images of others that a release uses, as its files name them."""
    found = []
    for path, pattern in _SOURCES:
        names = pattern.findall((root / path).read_text())
        if not names:
            raise ImageError(f"{path}: names no image")
        found += [Image.parse(name) for name in names]
    return found


def resolve(image: Image, *, scheme: str = "https") -> str:
    """Return the digest of the index that the tag names now. Raises `ImageError`."""
    host = _DOCKER_HOST if image.registry == _DOCKER else image.registry
    url = f"{scheme}://{host}/v2/{image.repository}/manifests/{image.tag}"
    try:
        body, headers = _fetch(url, image)
    except (urllib.error.URLError, TimeoutError, ValueError) as error:
        raise ImageError(f"{image}: the registry does not answer: {error}") from error
    _check_index(image, body, headers)
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    named = headers.get("Docker-Content-Digest", digest)
    if named != digest:
        raise ImageError(f"{image}: the registry says {named}, and its answer has {digest}")
    return digest


def _check_index(image: Image, body: bytes, headers: Mapping[str, str]) -> None:
    """Raise `ImageError` for what is no index of `PLATFORMS`: a proxy answers 200 with a page, too."""
    media_type = headers.get("Content-Type", "").partition(";")[0].strip()
    try:
        index: Any = json.loads(body)
    except (ValueError, RecursionError):
        index = None
    listed = index.get("manifests") if isinstance(index, dict) else None
    if (
        media_type not in INDEXES
        or not isinstance(listed, list)
        or index.get("schemaVersion") != _SCHEMA_VERSION
        or index.get("mediaType", media_type) != media_type
    ):
        quoted = body[:_QUOTED_MAX].decode(errors="replace")
        text = f"{media_type or 'no media type'}, {len(body)} bytes, {quoted!r}"
        raise ImageError(f"{image}: the registry answers no index of an image, but {text}")
    missing = PLATFORMS - {platform for one in listed for platform in _platforms(one)}
    if missing:
        raise ImageError(f"{image}: is not there for {', '.join(sorted(missing))}")


def _platforms(manifest: Any) -> list[str]:
    """The platform of an entry of an index; none for an entry that names no manifest."""
    if not isinstance(manifest, dict) or not isinstance(manifest.get("platform"), dict):
        return []
    if not _DIGEST.fullmatch(str(manifest.get("digest"))):
        return []
    platform = manifest["platform"]
    return [f"{platform.get('os')}/{platform.get('architecture')}"]


def pinned(image: Image, digest: str) -> str:
    """The name of the image by its digest. Raises `ImageError` for a text that is no digest."""
    if not _DIGEST.fullmatch(digest):
        raise ImageError(f"{image}: {digest!r} is no digest")
    return f"{image.registry}/{image.repository}@{digest}"


def _fetch(url: str, image: Image) -> tuple[bytes, Mapping[str, str]]:
    headers = {"Accept": ", ".join(INDEXES)}
    try:
        return _get(url, headers)
    except urllib.error.HTTPError as error:
        challenge = error.headers.get("WWW-Authenticate", "")
        if error.code != 401 or not challenge.startswith("Bearer "):
            raise
        return _get(url, {**headers, "Authorization": f"Bearer {_token(challenge, image)}"})


def _token(challenge: str, image: Image) -> str:
    """A token to pull, which a registry gives to everybody for public images."""
    parts = dict(_CHALLENGE.findall(challenge))
    scope = parts.get("scope") or f"repository:{image.repository}:pull"
    query = urllib.parse.urlencode({"service": parts.get("service", ""), "scope": scope})
    answer: Any = json.loads(_get(f"{parts.get('realm', '')}?{query}", {})[0])
    given = answer if isinstance(answer, dict) else {}
    token = given.get("token") or given.get("access_token")
    if not isinstance(token, str):
        raise ImageError(f"{image}: the registry gives no token to pull")
    return token


def _get(url: str, headers: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
    if not url.startswith(("https://", "http://")):
        raise ImageError(f"{url}: is no address of a registry")
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 - checked above
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
        body: bytes = answer.read(_BYTES_MAX + 1)
        if len(body) > _BYTES_MAX:
            raise ImageError(f"{url}: the manifest has more than {_BYTES_MAX} bytes")
        return body, answer.headers
