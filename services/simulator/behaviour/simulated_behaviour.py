"""Annotations by which a user controls how the simulation runs an object."""

from random import Random
from typing import Any, Final

from services.simulator.behaviour.clock import parse_duration
from services.simulator.cluster.kinds.registry import Obj
from shared.contracts.simulation import DURATION, OUTCOME, PREFIX

SECONDS_MIN: Final = 20.0
SECONDS_MAX: Final = 240.0
"""The random running time of a task or pod."""


def annotations(obj: Obj) -> dict[str, str]:
    """Return the annotations of an object, or none."""
    found: Any = obj.get("metadata", {}).get("annotations")
    return found if isinstance(found, dict) else {}


def duration(obj: Obj) -> float | None:
    """Return the annotated running time in seconds, or None if there is no valid annotation."""
    text = annotations(obj).get(DURATION)
    return None if text is None else parse_duration(text)


def some_duration(random: Random) -> float:
    """Draw the running time of an object without the annotation, in seconds."""
    return random.uniform(SECONDS_MIN, SECONDS_MAX)


def fails(obj: Obj) -> bool:
    """True if the annotation asks for a failure."""
    return annotations(obj).get(OUTCOME) == "fail"


def simulation_annotations(obj: Obj) -> dict[str, str]:
    """Return only the annotations of the simulation."""
    return {key: value for key, value in annotations(obj).items() if key.startswith(PREFIX)}
