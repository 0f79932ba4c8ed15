"""How the patcher refuses a message that asks for what its sender may not ask (ADR 73)."""

from typing import Final

from shared.bus.port import NeverError
from shared.telemetry.refusals import MessageRule

_FORGED: Final = "No correct service sends this: find out who has the sender's key, and rotate it."


class HostRule(MessageRule):
    """What the provisioner says about a machine, which becomes a dead letter."""

    EXCLUDED = (
        "excluded",
        "namespace: excluded here (SLUICE_EXCLUDED_NAMESPACES): builds get no hosts in it",
        "Build in another namespace, or take it out of `SLUICE_EXCLUDED_NAMESPACES`.",
    )
    SECRET = ("secret", "secret: no build reads {keys}")
    SEALED = ("secret", "sealed: holds no map of strings")
    NO_BUILD = ("no-build", "uid: this TaskRun does not mount Secret {secret}")

    def __init__(self, label: str, text: str, remedy: str = _FORGED) -> None:
        super().__init__("host", label, f"host of {{of}}: {text}", remedy)


class HubStatusRule(MessageRule):
    """What the dispatcher says about a job or a spoke, which becomes a dead letter."""

    TARGET = ("home", "target", "home of {of}: target.uid: another job controls this Workload")
    NOT_PLACED = (
        "home",
        "not-placed",
        "home of {of}: quota gave it no MultiKueue check: it runs on no spoke",
    )
    RUNS_HERE = (
        "home",
        "runs-here",
        "home of {of}: status: {job} runs here, not on a spoke",
        "Delete the job's copies on spokes if it was started here on purpose.",
    )
    SPOKE_INVALID = ("spoke", "invalid", "{of}: {problem}")
    CHECK_INVALID = ("standing", "invalid", "{of}: {problem}")
    CHECK_OF_OTHERS = (
        "standing",
        "controller",
        "{of}: spec.controllerName: {controller!r} answers for it",
    )

    def __init__(self, message: str, label: str, text: str, remedy: str = _FORGED) -> None:
        super().__init__(message, label, text, remedy)


class DecisionRule(MessageRule):
    """A decision of quota. It waits until the cluster agrees, or until a newer decision comes."""

    CONTRADICTION = (
        "admission",
        "contradiction",
        "the cluster contradicts the decision: {problem}",
        "Wait a minute. If it stays: `sluice explain`, then `sluice doctor` for a service that is behind.",
    )


def refused(rule: MessageRule, **values: object) -> NeverError:
    """Count a refusal; return the error by which the message becomes a dead letter."""
    rule.count()
    return NeverError(rule.says(**values))
