"""`make release`: the bill of materials, the digests of base images, checksums, and a signature.

1. Each image of somebody else is resolved at its registry. Without all digests nothing is written.
2. `images.json` has the images by digest, `sbom.cdx.json` everything.
3. `SHA256SUMS` has both, and is signed with Ed25519. Without a key the release is refused, unless
   `--unsigned` asks for it.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from services.reference.release.images import Image, ImageError, base_images, pinned, resolve
from services.reference.release.locked import ROOT, runtime_packages
from services.reference.release.sbom import bill_of_materials

FAILED: Final = 1


class ReleaseError(Exception):
    """The release is refused."""


def make_release(
    folder: Path, *, images: Sequence[Image], key: Path | None, scheme: str = "https"
) -> None:
    """Write the files of a release. Raises `ImageError` and `ReleaseError`, before anything is written."""
    digests = {image: resolve(image, scheme=scheme) for image in images}
    private = None if key is None else _read_key(key)
    files = {
        "images.json": {str(image): pinned(image, digest) for image, digest in digests.items()},
        "sbom.cdx.json": bill_of_materials(runtime_packages(), digests),
    }
    folder.mkdir(parents=True, exist_ok=True)
    sums = []
    for name, content in files.items():
        data = (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()
        (folder / name).write_bytes(data)
        sums.append(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
    checksums = "".join(sums).encode()
    (folder / "SHA256SUMS").write_bytes(checksums)
    if private is not None:
        (folder / "SHA256SUMS.sig").write_bytes(private.sign(checksums))
        public = private.public_key()
        pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / "release.pub").write_bytes(pem)


def _read_key(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise ReleaseError(f"{path}: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ReleaseError(f"{path}: must be an Ed25519 key: openssl genpkey -algorithm ed25519")
    return key


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a release. Returns 1 if it is refused."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "dist")
    parser.add_argument("--key", type=Path, help="PEM file of an Ed25519 key")
    parser.add_argument(
        "--unsigned", action="store_true", help="accept a release without signature"
    )
    given = parser.parse_args(arguments)
    try:
        if given.key is None and not given.unsigned:
            raise ReleaseError("no key to sign with: make release KEY=<file>, or UNSIGNED=1")
        make_release(given.folder, images=base_images(), key=given.key)
    except (ImageError, ReleaseError) as error:
        sys.stdout.write(f"no release: {error}\n")
        return FAILED
    sys.stdout.write(f"released to {given.folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
