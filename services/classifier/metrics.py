"""What classification counts, under the names that dashboards made for tekton-kueue ask for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import Counter

__all__ = ["EVALUATIONS", "FAILURE", "MUTATIONS", "RELOADS", "SUCCESS", "counted"]

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

for _counter in (EVALUATIONS, MUTATIONS, RELOADS):
    for _result in (SUCCESS, FAILURE):
        _counter.labels(_result)  # There from the start, so that a rate sees the first failure.


@contextmanager
def counted(counter: Counter) -> Iterator[None]:
    """Count how the block ends."""
    try:
        yield
    except Exception:
        counter.labels(FAILURE).inc()
        raise
    counter.labels(SUCCESS).inc()
