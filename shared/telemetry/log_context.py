"""What each log line about a workload carries beside its event: whom it is about, and the trace.

In: the workload's namespace and name, and its trace context. Out: `workload` and `trace` in every line that
is written meanwhile, also by what is called.
"""

from contextlib import AbstractContextManager

import structlog

from shared.telemetry.traceparent import parse_traceparent


def about(workload: str, traceparent: str | None = None) -> AbstractContextManager[None]:
    """Each line that is written inside carries `workload` (``<namespace>/<name>``) and `trace`.

    `workload`: empty if the line is about none. `traceparent`: the workload's trace context; without a valid
    one the lines carry no `trace`.
    """
    named = {"workload": workload} if workload else {}
    return structlog.contextvars.bound_contextvars(**named, **trace_of(traceparent))


def trace_of(traceparent: str | None) -> dict[str, str]:
    """The number of a trace as `trace`, in 32 hexadecimal digits; nothing without a valid context."""
    ids = parse_traceparent(traceparent)
    return {} if ids is None else {"trace": f"{ids[0]:032x}"}
