"""Which objects selectors pick."""

import pytest

from services.simulator.cluster.errors import ApiError
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.selectors import label_object_selector, select
from tests.unit.simulator.builders import api, kind

PODS = kind(api(), "pods")


def obj(**labels: str) -> Obj:
    return {
        "metadata": {"name": "n", "namespace": "ns", "labels": labels},
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running"},
    }


LABELS = {
    "a=1": True,
    "a==1": True,
    "a=2": False,
    "a!=2": True,
    "missing!=2": True,
    "a": True,
    "!a": False,
    "!missing": True,
    "a in (1, 2)": True,
    "a in (2)": False,
    "a notin (2,3)": True,
    "missing notin (2)": True,
    "a=1,b=2": True,
    "a=1,b=3": False,
    "a in (1,2),b": True,
    "example.com/x=y": True,
    "b=": False,
    "": True,
}


@pytest.mark.parametrize(("text", "picked"), LABELS.items())
def test_label_selector_matches_as_in_kubernetes(text: str, picked: bool) -> None:
    selector = select(PODS, labels=text)

    found = obj(a="1", b="2", **{"example.com/x": "y"})
    assert (selector is None or selector(found)) is picked


FIELDS = {
    "metadata.name=n": True,
    "metadata.name!=n": False,
    "metadata.namespace=ns": True,
    "spec.nodeName=node-1": True,
    "status.phase!=Running": False,
    "metadata.name=n,spec.nodeName=other": False,
}


@pytest.mark.parametrize(("text", "picked"), FIELDS.items())
def test_field_selector_matches_as_in_kubernetes(text: str, picked: bool) -> None:
    selector = select(PODS, fields=text)

    assert selector is not None
    assert selector(obj()) is picked


@pytest.mark.parametrize("text", ["spec.priority=1", "metadata.uid=x"])
def test_unsupported_field_selector_is_refused(text: str) -> None:
    with pytest.raises(ApiError, match="field label not supported") as refused:
        select(PODS, fields=text)

    assert refused.value.code == 400


@pytest.mark.parametrize("text", ["a in 1", "a b", "=x", "a in (1", "a>1"])
def test_malformed_selector_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        select(PODS, labels=text)

    assert refused.value.code == 400


def test_selector_objects_combine_labels_and_expressions() -> None:
    selector = label_object_selector(
        {
            "matchLabels": {"a": "1"},
            "matchExpressions": [
                {"key": "b", "operator": "In", "values": ["2"]},
                {"key": "c", "operator": "DoesNotExist"},
            ],
        }
    )

    assert selector(obj(a="1", b="2"))
    assert not selector(obj(a="1", b="3"))
    assert not selector(obj(a="1", b="2", c=""))
    assert label_object_selector({})(obj())
