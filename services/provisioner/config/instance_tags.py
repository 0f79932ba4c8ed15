"""An instance tag must describe the same machine as its platform.

`linux-d160-m2xlarge-arm64` (system, sizes, architecture) goes with `prod-arm64-m2xlarge-d160` (prefix,
architecture, sizes). With a tag copied from another platform, the machines of that platform would be
counted and terminated.
"""

from typing import Final

TAG_LENGTH_MAX: Final = {"ppc64le": 29, "s390x": 45}
"""Leaves room for a dash and 16 digits in the longest name that IBM's clouds accept."""

_PARTS_MIN: Final = 2


def check_instance_tag(key: str, tag: str) -> None:
    """Raise ValueError where `tag` does not fit the platform whose key is `key`."""
    key_parts, tag_parts = key.split("-"), tag.split("-")
    if len(key_parts) < _PARTS_MIN:
        raise ValueError(f"platform '{key}' names no architecture")
    if len(tag_parts) < _PARTS_MIN:
        raise ValueError(f"'{tag}' must be '<prefix>-<architecture>[-<instance type>]'")
    architecture, tag_architecture = key_parts[-1], tag_parts[1]
    if architecture != tag_architecture:
        raise ValueError(
            f"platform mismatch: key has '{architecture}', value has '{tag_architecture}'"
        )
    # The parts of the type may come in any order.
    type_, tag_type = "-".join(sorted(key_parts[1:-1])), "-".join(sorted(tag_parts[2:]))
    if type_ != tag_type:
        raise ValueError(f"instance type mismatch: key has '{type_}', value has '{tag_type}'")
    check_length(key, tag)


def check_length(key: str, tag: str) -> None:
    """Raise ValueError where a machine of the platform whose key is `key` cannot be named after `tag`."""
    architecture = key.rpartition("-")[2]
    longest = TAG_LENGTH_MAX.get(architecture)
    if longest is not None and len(tag) > longest:
        raise ValueError(
            f"instance tag too long for {architecture}: {len(tag)} characters (max {longest})"
        )
