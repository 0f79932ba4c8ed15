"""What the gateway refuses to a spoke."""

from typing import Final

from shared.telemetry.refusals import MessageRule

_SLOWER: Final = (
    "Nothing: the spoke tries again. If it stays, see which of its services asks so often."
)


class GatewayRule(MessageRule):
    """A request or a message of a spoke at the gateway of the hub."""

    TOO_LARGE = (
        "too large",
        "the request is too large: {size} bytes",
        "Upgrade the spoke, or revoke it.",
    )
    TOO_MANY = ("too many", "too many requests at once: {subject}", _SLOWER)
    NOT_PERMITTED = (
        "not permitted",
        "a spoke may not ask this: {problem}",
        "Upgrade the spoke; if it is of this release, revoke it.",
    )
    HEADER = (
        "header",
        "a spoke may not ask the server for anything by the header {header}",
        "Upgrade the spoke; if it is of this release, revoke it.",
    )
    TOO_FAST = ("too fast", "more than {most} messages of {spoke} wait", _SLOWER)
    SIZE = (
        "size",
        "{spoke} may not write {size} bytes about one {what}: {most} at most",
        "Make the object smaller; if no API server would store it, revoke the spoke.",
    )
    CONFIGURATION = (
        "configuration",
        (
            "{spoke} {problem}: it waits until some are gone; raise spoke_configuration_mib of {log} in "
            "deploy/nats/streams.yaml, and the memory of classifier and quota (docs/how-to/spokes.md)"
        ),
        "Raise `spoke_configuration_mib` and the memory of the hub, or see what the spoke writes.",
    )
    PART = (
        "part of the log",
        (
            "{spoke} has used up its part of {log}: it waits until there is room again; raise "
            "max_gib of {log} in "
            "deploy/nats/streams.yaml if the spoke needs more (docs/how-to/spokes.md)"
        ),
        "Raise `max_gib` of that log, or see what the spoke writes.",
    )
    SHARE = (
        "share of the view",
        (
            "{spoke} {problem}: it waits until there is room again; raise max_gib of {log} in "
            "deploy/nats/streams.yaml if the spoke needs more (docs/how-to/spokes.md)"
        ),
        "Raise `max_gib` of that log, or see what the spoke writes.",
    )

    def __init__(self, label: str, text: str, remedy: str) -> None:
        super().__init__("gateway", label, text, remedy)
