"""Releases and audits, against a registry and an OSV of our own."""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_public_key,
)

from services.reference.release import audit, files
from services.reference.release.files import ReleaseError, make_release
from services.reference.release.images import (
    INDEXES,
    PLATFORMS,
    Image,
    ImageError,
    base_images,
    pinned,
    resolve,
)
from services.reference.release.locked import ROOT, runtime_packages
from services.reference.release.sbom import bill_of_materials
from tests.unit.release.registry import Site, index, site


@pytest.fixture
def registry() -> Iterator[Site]:
    with site() as found:
        yield found


def image(registry: Site, repository: str = "library/python", tag: str = "3.12") -> Image:
    return Image(registry=registry.address, repository=repository, tag=tag)


def key_file(folder: Path) -> Path:
    pem = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    path = folder / "key.pem"
    path.write_bytes(pem)
    return path


def test_digest_of_a_tag_is_that_of_its_manifest(registry: Site) -> None:
    digest = registry.add("library/python", "3.12")
    assert resolve(image(registry), scheme="http") == digest


def test_digest_that_is_not_that_of_the_manifest_is_refused(registry: Site) -> None:
    registry.add("library/python", "3.12")
    registry.digest = "sha256:" + "0" * 64
    with pytest.raises(ImageError, match="its answer has"):
        resolve(image(registry), scheme="http")


GOOD: Final = index("linux/amd64", "linux/arm64", "unknown/unknown")
NO_INDEX: Final[dict[str, tuple[str, bytes]]] = {
    "a page of HTML": ("text/html", b"<html>login</html>"),
    "a page that calls itself an index": (INDEXES[0], b"<html>login</html>"),
    "nothing": (INDEXES[0], b""),
    "a list": (INDEXES[0], b"[]"),
    "an index as plain JSON": ("application/json", json.dumps(GOOD).encode()),
    "the manifest of one platform": (
        "application/vnd.oci.image.manifest.v1+json", b'{"schemaVersion": 2, "layers": []}'
    ),
    "a manifest that calls itself an index": (INDEXES[0], b'{"schemaVersion": 2, "layers": []}'),
    "an index of another version": (INDEXES[0], json.dumps({**GOOD, "schemaVersion": 1}).encode()),
    "an index of another media type": (
        INDEXES[0], json.dumps({**GOOD, "mediaType": INDEXES[1]}).encode()
    ),
    "deep JSON": (INDEXES[0], b"[" * 100_000),
}  # fmt: skip
LACKING: Final[dict[str, tuple[Any, str]]] = {
    "no manifests": ([], "linux/amd64, linux/arm64"),
    "one platform": (index("linux/amd64")["manifests"], "linux/arm64"),
    "other platforms": (index("windows/amd64", "linux/s390x")["manifests"], "linux/amd64, linux"),
    "entries that are none": ([7, {}, {"platform": 7}], "linux/amd64, linux/arm64"),
    "entries without digest": (
        [{**one, "digest": "sha256:0"} for one in GOOD["manifests"]], "linux/amd64, linux/arm64"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("media_type", "body"), NO_INDEX.values(), ids=NO_INDEX.keys())
def test_answer_that_is_no_index_is_no_release(
    registry: Site, tmp_path: Path, media_type: str, body: bytes
) -> None:
    """The login page of a proxy would become a signed release."""
    registry.manifests["library/python:3.12"] = body
    registry.media_type = media_type
    with pytest.raises(ImageError, match=r"python:3\.12: the registry answers no index") as told:
        make_release(tmp_path / "dist", images=[image(registry)], key=None, scheme="http")
    assert f"{media_type}, {len(body)} bytes" in str(told.value)
    assert not (tmp_path / "dist").exists()


@pytest.mark.parametrize("token", [b"", b"<html>login</html>", b"[]", b"{}", b'{"token": 7}'])
def test_registry_without_a_token_is_refused(registry: Site, token: bytes) -> None:
    registry.add("library/python", "3.12")
    registry.token = token
    with pytest.raises(ImageError, match=r"python:3\.12: the registry"):
        resolve(image(registry), scheme="http")


@pytest.mark.parametrize(("manifests", "missing"), LACKING.values(), ids=LACKING.keys())
def test_image_that_is_not_there_for_our_platforms_is_refused(
    registry: Site, manifests: Any, missing: str
) -> None:
    body = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    registry.manifests["library/python:3.12"] = body
    with pytest.raises(ImageError, match=f"is not there for {missing}"):
        resolve(image(registry), scheme="http")


def test_platforms_of_a_release_are_those_that_the_image_is_built_for() -> None:
    [built] = re.findall(r"--platform (\S+)", (ROOT / "deploy/image/Dockerfile").read_text())
    assert set(built.split(",")) == PLATFORMS


def test_tag_that_does_not_exist_is_refused(registry: Site) -> None:
    with pytest.raises(
        ImageError, match=r"library/python:3\.12: the registry does not answer: .*404"
    ):
        resolve(image(registry), scheme="http")


def test_registry_that_does_not_answer_is_named() -> None:
    gone = Image(registry="127.0.0.1:9", repository="a", tag="b")
    with pytest.raises(ImageError, match=r"127\.0\.0\.1:9/a:b"):
        resolve(gone, scheme="http")


@pytest.mark.parametrize(
    "text", ["python", "python:3.12", "library/python:3.12", "docker.io/python"]
)
def test_image_without_registry_or_tag_is_refused(text: str) -> None:
    with pytest.raises(ImageError, match="must be"):
        Image.parse(text)


def test_images_of_others_are_found_in_our_files() -> None:
    names = {found.repository.rpartition("/")[2] for found in base_images()}
    assert names == {"python", "nats", "pause"}


def test_release_has_digests_list_checksums_and_signature(registry: Site, tmp_path: Path) -> None:
    images = [image(registry), image(registry, "library/nats", "2")]
    digests = [registry.add(one.repository, one.tag) for one in images]
    folder = tmp_path / "dist"
    make_release(folder, images=images, key=key_file(tmp_path), scheme="http")
    recorded = json.loads((folder / "images.json").read_text())
    assert list(recorded.values()) == [
        pinned(one, digest) for one, digest in sorted(zip(images, digests, strict=True), key=str)
    ]
    sums = (folder / "SHA256SUMS").read_bytes()
    for line in sums.decode().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    public = load_pem_public_key((folder / "release.pub").read_bytes())
    assert isinstance(public, Ed25519PublicKey)
    public.verify((folder / "SHA256SUMS.sig").read_bytes(), sums)


def test_release_without_a_digest_writes_nothing(registry: Site, tmp_path: Path) -> None:
    registry.add("library/python", "3.12")
    images = [image(registry), image(registry, "library/nats", "gone")]
    with pytest.raises(ImageError, match="library/nats:gone"):
        make_release(tmp_path / "dist", images=images, key=key_file(tmp_path), scheme="http")
    assert not (tmp_path / "dist").exists()


def test_release_with_a_key_of_another_kind_writes_nothing(registry: Site, tmp_path: Path) -> None:
    registry.add("library/python", "3.12")
    wrong = tmp_path / "key.pem"
    wrong.write_text("no key")
    with pytest.raises(ReleaseError, match=r"key\.pem"):
        make_release(tmp_path / "dist", images=[image(registry)], key=wrong, scheme="http")
    assert not (tmp_path / "dist").exists()


def test_release_without_a_key_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert files.main(["--folder", str(tmp_path / "dist")]) == files.FAILED
    assert "no key to sign with" in capsys.readouterr().out


def test_bill_of_materials_lists_every_package_with_hashes_and_what_it_needs() -> None:
    packages = runtime_packages()
    images = {Image(registry="docker.io", repository="library/nats", tag="2"): "sha256:" + "a" * 64}
    bill = bill_of_materials(packages, images)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "sluicegate"
    libraries = [one for one in bill["components"] if one["type"] == "library"]
    assert {one["name"] for one in libraries} == {one.name for one in packages[1:]}
    for one in libraries:
        assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}"
        assert one["externalReferences"], one["name"]
    refs = [one["bom-ref"] for one in bill["components"]]
    assert len(refs) == len(set(refs))
    known = {*refs, bill["metadata"]["component"]["bom-ref"]}
    for one in bill["dependencies"]:
        assert {one["ref"], *one["dependsOn"]} <= known
    [container] = [one for one in bill["components"] if one["type"] == "container"]
    assert container["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert bill == bill_of_materials(packages, images), "the same for the same contents"


def test_audit_names_packages_with_known_vulnerabilities(
    registry: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.vulnerable = {"pyyaml": ["PYSEC-2", "GHSA-1"]}
    assert audit.main(["--url", f"http://{registry.address}/"]) == audit.FOUND
    assert ": GHSA-1, PYSEC-2\n" in capsys.readouterr().out


def test_audit_passes_where_nothing_is_known(registry: Site) -> None:
    assert audit.main(["--url", f"http://{registry.address}/", "--strict"]) == 0


ANSWERS: dict[str, Any] = {"no results": {}, "too few": {"results": []}, "a list": [1]}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_audit_takes_no_other_answer_for_a_result(registry: Site, answer: Any) -> None:
    registry.osv_answer = answer
    assert audit.main(["--url", f"http://{registry.address}/", "--strict"]) == audit.UNKNOWN


def test_audit_without_network_says_so_and_does_not_fail(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert audit.main(["--url", "http://127.0.0.1:9/"]) == 0
    assert "not audited" in capsys.readouterr().out
    assert audit.main(["--url", "http://127.0.0.1:9/", "--strict"]) == audit.UNKNOWN
