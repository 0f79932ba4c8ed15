"""Builders of objects that validation tests share."""

from typing import Any, Final

from services.classifier.validation import validate
from shared.contracts.kube.kinds import Object

V2: Final = "kueue.x-k8s.io/v1beta2"


def obj(kind: str, spec: Object | None = None, **more: Any) -> Object:
    made: Object = {"apiVersion": V2, "kind": kind, "metadata": {"name": "x"}, **more}
    return made if spec is None else {**made, "spec": spec}


def quota(name: str = "cpu", nominal: Any = 4, **limits: Any) -> Object:
    return {"name": name, "nominalQuota": nominal, **limits}


def group(*flavors: str, covered: tuple[str, ...] = ("cpu",), **limits: Any) -> Object:
    return {
        "coveredResources": list(covered),
        "flavors": [
            {"name": name, "resources": [quota(resource, **limits) for resource in covered]}
            for name in flavors
        ],
    }


def queue(*groups: Object, **spec: Any) -> Object:
    return obj("ClusterQueue", {"resourceGroups": list(groups), **spec})


def cohort(*groups: Object, **spec: Any) -> Object:
    return obj("Cohort", {"resourceGroups": list(groups), **spec})


def said(new: Object, old: Object | None = None) -> list[str]:
    return [str(problem) for problem in validate(new, old)]
