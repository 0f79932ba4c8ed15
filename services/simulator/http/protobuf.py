"""Decodes the messages that ``kubectl create`` always sends as protobuf.

Field numbers are those of the published ``generated.proto`` files. Answers are always JSON, which
every client accepts.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from services.simulator.cluster.errors import bad_request, unsupported_media_type
from services.simulator.cluster.kinds.registry import Obj

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"
VARINT_BYTES_MAX: Final = 10

_Scalar = Literal["string", "bytes", "bool", "strings", "string map", "bytes map"]
_Message = Mapping[int, tuple[str, "_Scalar | _Message"]]

METADATA: Final[_Message] = {
    1: ("name", "string"),
    2: ("generateName", "string"),
    3: ("namespace", "string"),
    11: ("labels", "string map"),
    12: ("annotations", "string map"),
    14: ("finalizers", "strings"),
}
KINDS: Final[Mapping[tuple[str, str], _Message]] = {
    ("v1", "Namespace"): {1: ("metadata", METADATA)},
    ("v1", "ServiceAccount"): {1: ("metadata", METADATA)},
    ("v1", "ConfigMap"): {
        1: ("metadata", METADATA),
        2: ("data", "string map"),
        3: ("binaryData", "bytes map"),
        4: ("immutable", "bool"),
    },
    ("v1", "Secret"): {
        1: ("metadata", METADATA),
        2: ("data", "bytes map"),
        3: ("type", "string"),
        4: ("stringData", "string map"),
        5: ("immutable", "bool"),
    },
}
"""The supported messages. Fields without an entry are skipped."""

TYPE: Final[_Message] = {1: ("apiVersion", "string"), 2: ("kind", "string")}
ENVELOPE: Final[_Message] = {1: ("type", TYPE), 2: ("raw", "bytes")}


def decode_protobuf(raw: bytes) -> Obj:
    """Return the object as JSON values. Raises 415 for kinds without an entry in `MESSAGES`."""
    if not raw.startswith(MAGIC):
        raise bad_request("the body is not what its content type says: no protobuf envelope")
    try:
        envelope = _read(raw[len(MAGIC) :], ENVELOPE, encode=False)
        found = envelope.get("type", {})
        named = (str(found.get("apiVersion", "")), str(found.get("kind", "")))
        message = KINDS.get(named)
        if message is None:
            raise unsupported_media_type(
                f"{named[1]} is not understood as protobuf here; send application/json "
                "(with kubectl: create --dry-run=client -o yaml, then apply)"
            )
        obj = _read(envelope.get("raw", b""), message, encode=True)
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise bad_request(f"the body is not readable protobuf: {error}") from error
    return {"apiVersion": named[0], "kind": named[1], **obj}


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count in range(VARINT_BYTES_MAX):
        byte = raw[at + count]
        value |= (byte & 0x7F) << (7 * count)
        if not byte & 0x80:
            return value, at + count + 1
    raise ValueError("a number that does not end")


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, wire = tag >> 3, tag & 7
        match wire:
            case 0:
                value, at = _varint(raw, at)
                yield number, value
            case 2:
                length, at = _varint(raw, at)
                if at + length > len(raw):
                    raise ValueError("a field that is longer than its message")
                yield number, raw[at : at + length]
                at += length
            case 1 | 5:
                at += 8 if wire == 1 else 4
            case _:
                raise ValueError(f"wire type {wire}")


def _read(raw: bytes, message: _Message, *, encode: bool) -> Obj:
    """Read one message. Bytes are encoded as base64, as in JSON."""
    found: dict[str, Any] = {}
    for number, value in _fields(raw):
        if number not in message:
            continue
        name, shape = message[number]
        if isinstance(value, int):
            found[name] = bool(value)
        elif isinstance(shape, Mapping):
            found[name] = _read(value, shape, encode=encode)
        elif shape in {"string map", "bytes map"}:
            entry = dict(_fields(value))
            key, content = entry.get(1, b""), entry.get(2, b"")
            if not isinstance(key, bytes) or not isinstance(content, bytes):
                raise ValueError(f"{name} is not a map")  # noqa: TRY004 - bad data
            shown = content.decode() if shape == "string map" else b64encode(content).decode()
            found.setdefault(name, {})[key.decode()] = shown
        elif shape == "strings":
            found.setdefault(name, []).append(value.decode())
        elif shape == "bytes":
            found[name] = b64encode(value).decode() if encode else value
        elif value or name == "raw":
            # Go writes empty strings, too; JSON omits them.
            found[name] = value.decode()
    return found
