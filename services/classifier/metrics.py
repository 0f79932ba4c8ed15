"""The service's Prometheus metrics. Dashboards made for tekton-kueue ask for the names `tekton_kueue_…`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

SUCCESS: Final = "success"
FAILURE: Final = "failure"

EVALUATIONS: Final = Counter(
    "tekton_kueue_cel_evaluations", "Objects on which all expressions were evaluated.", ["result"]
)
MUTATIONS: Final = Counter(
    "tekton_kueue_cel_mutations", "Objects to which what they returned was applied.", ["result"]
)
RELOADS: Final = Counter(
    "tekton_kueue_config_reload", "Configurations that were offered.", ["result"]
)
RELOAD_FAILURES: Final = Counter(
    "tekton_kueue_config_reload_failure",
    "Never counts, as in the reference: see tekton_kueue_config_reload_total.",
    ["result"],
)
POSTPONED: Final = Gauge(
    "sluicegate_postponed_workloads",
    "New workloads that are not published while the log WORKLOADS is nearly full.",
)
REVIEWS: Final = Counter("sluicegate_webhook_reviews", "Admission reviews answered.", ["outcome"])
REVIEW_SECONDS: Final = Histogram(
    "sluicegate_webhook_seconds",
    "Time to answer an admission review, from the body's last byte.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 10),
)

REVIEWS_REFUSED: Final = Counter(
    "sluicegate_webhook_refused",
    "Admission reviews and connections refused, by rule: docs/reference/refusals.md.",
    ["cause"],
)
EVALUATIONS_CUT_OFF: Final = Counter(
    "sluicegate_webhook_cut_off", "Evaluations that the kernel ended.", ["lane", "cause"]
)
BYTES_IN_FLIGHT: Final = Gauge(
    "sluicegate_webhook_bytes_in_flight",
    "Bytes of the bodies of all reviews that are not answered.",
)

for _counter in (EVALUATIONS, MUTATIONS, RELOADS):
    for _result in (SUCCESS, FAILURE):
        # A series must exist before its first failure, or `rate()` does not see that failure.
        _counter.labels(_result)


@contextmanager
def counted(counter: Counter) -> Iterator[None]:
    """Count the block as a success, or as a failure if it raises."""
    try:
        yield
    except Exception:
        counter.labels(FAILURE).inc()
        raise
    counter.labels(SUCCESS).inc()
