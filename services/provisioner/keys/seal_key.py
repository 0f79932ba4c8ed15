"""What the provisioner refuses about the keys to which Secrets of builds are sealed."""

from shared.telemetry.refusals import MessageRule


class SealKeyRule(MessageRule):
    """The key of a cluster's patcher, to which Secrets of builds are sealed. The earlier key stays."""

    INVALID = (
        "seal",
        "invalid",
        "public_key: {key!r}: is no public key for which a Secret can be encrypted",
        "Restart the patcher of that cluster; if it says so again, rotate its key.",
    )


def why_refused(public_key: str) -> str:
    """Count a key to which nothing can be sealed; return the text."""
    SealKeyRule.INVALID.count()
    return SealKeyRule.INVALID.says(key=public_key[:80])
