"""Rules for our own annotations on Kueue's kinds."""

from collections.abc import Iterator

from services.classifier.validation.problems import Problem, invalid, unsupported
from services.classifier.validation.reading import at, mapping
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import DEFAULT_PRIORITY, NEVER, ON_PREEMPTION, STOP_AND_RECREATE
from shared.contracts.kube.numbers import INT32_MAX, SHORT_INTEGER
from shared.contracts.windows import CONTROLLER, WINDOWS, WindowsError, read_windows


def local_queue(obj: Object) -> Iterator[Problem]:
    """Check the default priority of jobs, and the preemption policy."""
    value = at(obj, "metadata", "annotations", DEFAULT_PRIORITY)
    if value is not None:
        text = str(value)
        if not SHORT_INTEGER.fullmatch(text) or not -INT32_MAX - 1 <= int(text) <= INT32_MAX:
            yield invalid(_field(DEFAULT_PRIORITY), value, "must be a 32-bit integer")
    yield from on_preemption(obj)


def on_preemption(obj: Object) -> Iterator[Problem]:
    """Check the preemption policy for jobs that cannot be suspended."""
    value = at(obj, "metadata", "annotations", ON_PREEMPTION)
    if value is not None and value not in {NEVER, STOP_AND_RECREATE}:
        yield unsupported(_field(ON_PREEMPTION), value, (NEVER, STOP_AND_RECREATE))


def admission_check(obj: Object) -> Iterator[Problem]:
    """Check the time windows of an AdmissionCheck that our time controller answers."""
    if at(obj, "spec", "controllerName") != CONTROLLER:
        return
    annotations = {k: str(v) for k, v in mapping(obj, "metadata", "annotations").items()}
    try:
        read_windows(annotations)
    except WindowsError as error:
        yield invalid("metadata.annotations", annotations.get(WINDOWS, ""), str(error))


def _field(annotation: str) -> str:
    return f"metadata.annotations[{annotation}]"
