"""Instance tags and the platforms that they belong to."""

import pytest

from services.provisioner.config.instance_tags import check_instance_tag

TAGS = {
    "the architecture alone": ("linux-arm64", "prod-arm64", None),
    "the type follows the architecture": ("linux-mlarge-arm64", "prod-arm64-mlarge", None),
    "parts of the type in any order": ("linux-d160-m2xlarge-arm64", "prod-arm64-m2xlarge-d160", None),
    "another architecture": (
        "linux-arm64", "prod-amd64", "platform mismatch: key has 'arm64', value has 'amd64'",
    ),
    "another type": (
        "linux-mlarge-arm64", "prod-arm64-m2xlarge",
        "instance type mismatch: key has 'mlarge', value has 'm2xlarge'",
    ),
    "no type where the platform has one": (
        "linux-mlarge-arm64", "prod-arm64", "instance type mismatch: key has 'mlarge', value has ''",
    ),
    "no architecture": (
        "linux-arm64", "prod", "'prod' must be '<prefix>-<architecture>[-<instance type>]'",
    ),
    "29 characters are the most for ppc64le": ("linux-ppc64le", f"{'p' * 21}-ppc64le", None),
    "30 are too many for ppc64le": (
        "linux-ppc64le", f"{'p' * 22}-ppc64le",
        "instance tag too long for ppc64le: 30 characters (max 29)",
    ),
    "46 are too many for s390x": (
        "linux-s390x", f"{'p' * 40}-s390x", "instance tag too long for s390x: 46 characters (max 45)",
    ),
    "others may be long": ("linux-arm64", f"{'p' * 90}-arm64", None),
    "a platform without a dash": ("local", "prod-arm64", "platform 'local' names no architecture"),
}  # fmt: skip


@pytest.mark.parametrize(("key", "tag", "error"), TAGS.values(), ids=TAGS.keys())
def test_instance_tag_must_match_platform(key: str, tag: str, error: str | None) -> None:
    if error is None:
        check_instance_tag(key, tag)
    else:
        with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is compared below
            check_instance_tag(key, tag)
        assert str(raised.value) == error
