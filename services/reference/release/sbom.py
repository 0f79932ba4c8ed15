"""The list of everything in a release, as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/)."""

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from services.reference.release.images import Image, pinned
from services.reference.release.locked import Package

SPECIFICATION: Final = "1.6"
_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "https://sluicegate.dev/sbom")


def bill_of_materials(packages: Sequence[Package], digests: Mapping[Image, str]) -> dict[str, Any]:
    """Return the document; the same for the same contents. The first package is ours."""
    ours, *others = packages
    images = [_image(image, digest) for image, digest in digests.items()]
    contents: dict[str, Any] = {
        "metadata": {"component": {**_component(ours), "type": "application"}},
        "components": [*map(_component, others), *images],
        "dependencies": _dependencies(packages),
    }
    serial = uuid.uuid5(_NAMESPACE, json.dumps(contents, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        **contents,
    }


def _component(package: Package) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "externalReferences": [
            {
                "type": "distribution",
                "url": url,
                "hashes": [{"alg": "SHA-256", "content": content}],
            }
            for url, content in package.hashes
        ],
    }


def _image(image: Image, digest: str) -> dict[str, Any]:
    return {
        "type": "container",
        "bom-ref": pinned(image, digest),
        "name": f"{image.registry}/{image.repository}",
        "version": image.tag,
        "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
    }


def _dependencies(packages: Sequence[Package]) -> list[dict[str, Any]]:
    purls = {package.name: package.purl for package in packages}
    return [
        {"ref": package.purl, "dependsOn": [purls[name] for name in package.needs]}
        for package in packages
    ]
