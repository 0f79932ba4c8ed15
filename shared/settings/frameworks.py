"""Kueue's names of kinds (`integrations.frameworks` of its Configuration), and what becomes of each."""

from collections.abc import Iterator
from typing import Final

_OURS: Final = (
    "batch/job",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "sparkoperator.k8s.io/sparkapplication",
    "workload.codeflare.dev/appwrapper",
)
"""Kueue's names of the kinds for which an Integration ships."""

_REFUSED: Final = ("trainer.kubeflow.org/trainjob",)
"""Kueue's names of the kinds whose Integration refuses every object with a queue."""

_OPTED: Final = ("deployment", "leaderworkerset.x-k8s.io/leaderworkerset", "pod", "statefulset")
"""Kueue's names of the kinds that wait only if they are listed."""

KNOWN: Final = frozenset((*_OURS, *_REFUSED, *_OPTED))
"""All that Kueue knows."""


def warnings(asked: tuple[str, ...] | None) -> Iterator[str]:
    """Yield a sentence for each kind that is not treated as the list says; None: there is no list."""
    if asked is None:
        return
    for name in asked:
        if name in _REFUSED:
            yield (
                f"{name}: objects with a queue are refused, because their pods cannot be counted; apply an "
                "Integration that counts them"
            )
    if left_out := [name for name in _OURS if name not in asked]:
        yield f"not listed, and wait all the same if they name a queue: {', '.join(left_out)}"


def external_warnings(names: tuple[str, ...]) -> Iterator[str]:
    """Yield a sentence for each kind (`kind.version.group`) of which no Integration ships."""
    # Few documents name such kinds; who reads another one needs no Integration for it.
    from shared.integrations import integration_for  # noqa: PLC0415

    for name in names:
        kind, version, group = name.split(".", 2)
        shipped = integration_for(group=group, kind=kind)
        if shipped is None:
            yield f"{name}: no Integration ships for it; apply one, then it waits and can run on spokes"
        elif shipped.kind.version != version:
            yield f"{name}: the Integration that ships is for {shipped.kind.version}"
