"""What a user may ask of the simulation by annotations on an object."""

from random import Random
from typing import Any, Final

from services.simulator.behaviour.clock import parse_duration
from services.simulator.cluster.kinds.registry import Obj

__all__ = [
    "DURATION",
    "OUTCOME",
    "PODS",
    "PREFIX",
    "annotations",
    "duration",
    "fails",
    "simulation_annotations",
    "some_duration",
]

PREFIX: Final = "simulator.sluicegate.dev/"
DURATION: Final = PREFIX + "duration"
"""How long it runs in simulated time: ``90s``. Without it, a random time."""

OUTCOME: Final = PREFIX + "outcome"
"""``fail``: it ends in failure."""

PODS: Final = PREFIX + "pods"
"""``true`` on a PipelineRun or TaskRun: its tasks run in pods, on nodes. Without it, only tasks do that
mount a claim or follow a placeholder: for all others a queue sees the same with half the objects."""

SECONDS_MIN: Final = 20.0
SECONDS_MAX: Final = 240.0
"""The random running time of a task or pod."""


def annotations(obj: Obj) -> dict[str, str]:
    """Return the annotations of an object, or none."""
    found: Any = obj.get("metadata", {}).get("annotations")
    return found if isinstance(found, dict) else {}


def duration(obj: Obj) -> float | None:
    """Return how many seconds the object wishes to run, or ``None`` without a readable wish."""
    text = annotations(obj).get(DURATION)
    return None if text is None else parse_duration(text)


def some_duration(random: Random) -> float:
    """Draw how long something runs that has no wish."""
    return random.uniform(SECONDS_MIN, SECONDS_MAX)


def fails(obj: Obj) -> bool:
    """Whether the object wishes to end in failure."""
    return annotations(obj).get(OUTCOME) == "fail"


def simulation_annotations(obj: Obj) -> dict[str, str]:
    """Return only the annotations that are meant for the simulation."""
    return {key: value for key, value in annotations(obj).items() if key.startswith(PREFIX)}
