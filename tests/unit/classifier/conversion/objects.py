"""Builders that conversion tests share."""

from typing import Any, Final

from hypothesis import strategies as st

V1: Final = "kueue.x-k8s.io/v1beta1"


V2: Final = "kueue.x-k8s.io/v1beta2"


name = st.sampled_from(["a", "b-1", "node-17", "node-18", "rack"])


Strategy = st.SearchStrategy[Any]


def some(fixed: dict[str, Strategy] | None = None, /, **optional: Strategy) -> Strategy:
    return st.fixed_dictionaries(fixed or {}, optional=optional)


def obj(version: str, kind: str, **parts: Strategy) -> Strategy:
    annotations = st.dictionaries(st.sampled_from(["a", "b.example/c"]), name, min_size=1)
    metadata = some({"name": name}, annotations=annotations, labels=annotations)
    fixed = {"apiVersion": st.just(version), "kind": st.just(kind), "metadata": metadata}
    return some(fixed, **parts)
