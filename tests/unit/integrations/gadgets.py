"""A home-made kind, and documents about it."""

from typing import Any

import yaml

from shared.contracts.kube.kinds import Object
from shared.integrations import Integration
from shared.integrations.document import parse

__all__ = ["DOCUMENT", "document", "gadget", "loaded"]

DOCUMENT = """\
apiVersion: sluicegate.dev/v1alpha1
kind: Integration
metadata:
  name: gadgets.example.com
spec:
  kind: {group: example.com, version: v1, kind: Gadget, plural: gadgets}
  podSets:
  - template: spec.template
    count: spec.replicas
"""


def document(**spec: Any) -> Object:
    """The document, with some of its spec said otherwise; None leaves a field out."""
    obj: Object = yaml.safe_load(DOCUMENT)
    obj["spec"] = {k: v for k, v in {**obj["spec"], **spec}.items() if v is not None}
    return obj


def loaded(text: str = DOCUMENT, **spec: Any) -> Integration:
    """The integration of a text, or of `document(**spec)`."""
    if spec:
        return Integration.load(document(**spec))
    [(obj, lines)] = parse(text)
    return Integration.load(obj, lines)


def gadget(*, status: Object | None = None, **spec: Any) -> Object:
    """A Gadget of two pods."""
    container = {"name": "work", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "example.com/v1",
        "kind": "Gadget",
        "metadata": {"name": "one", "uid": "u-1"},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}, **spec},
        "status": status or {},
    }
