"""How the patcher refuses a message that asks for what its sender may not ask (ADR 73)."""

from typing import Final

from shared.bus.port import NeverError
from shared.telemetry.refusals import MessageRule

_FORGED: Final = "No correct service sends this: find out who has the sender's key, and rotate it."


class PatcherRule(MessageRule):
    """A message to the patcher of this cluster, which becomes a dead letter."""

    HOST_EXCLUDED = (
        "host",
        "excluded",
        "host of {of}: namespace: excluded here (SLUICE_EXCLUDED_NAMESPACES): builds get no hosts in it",
        "Build in another namespace, or take it out of `SLUICE_EXCLUDED_NAMESPACES`.",
    )
    HOST_SECRET = ("host", "secret", "host of {of}: secret: no build reads {keys}", _FORGED)
    HOST_SEALED = ("host", "secret", "host of {of}: sealed: holds no map of strings", _FORGED)
    HOST_NO_BUILD = (
        "host",
        "no-build",
        "host of {of}: uid: this TaskRun does not mount Secret {secret}",
        _FORGED,
    )
    HOME_TARGET = (
        "home",
        "target",
        "home of {of}: target.uid: another job controls this Workload",
        _FORGED,
    )
    HOME_RUNS_HERE = (
        "home",
        "runs-here",
        "home of {of}: status: {job} runs here, not on a spoke",
        "Delete the job's copies on spokes if it was started here on purpose.",
    )
    SPOKE_INVALID = ("spoke", "invalid", "{of}: {problem}", _FORGED)
    CHECK_INVALID = ("standing", "invalid", "{of}: {problem}", _FORGED)
    CHECK_OF_OTHERS = (
        "standing",
        "controller",
        "{of}: spec.controllerName: {controller!r} answers for it",
        _FORGED,
    )


class DecisionRule(MessageRule):
    """A decision of quota. It waits until the cluster agrees, or until a newer decision comes."""

    CONTRADICTION = (
        "admission",
        "contradiction",
        "the cluster contradicts the decision: {problem}",
        "Wait a minute. If it stays: `sluice explain`, then `sluice doctor` for a service that is behind.",
    )


def refused(rule: PatcherRule, **values: object) -> NeverError:
    """Count a refusal; return the error by which the message becomes a dead letter."""
    rule.count()
    return NeverError(rule.says(**values))
