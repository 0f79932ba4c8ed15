"""CustomResourceDefinitions of home-made kinds, with schemas."""

from typing import Any, Final

from shared.contracts.kube.kinds import Object


def _object(**properties: Any) -> Object:
    return {"type": "object", "properties": properties}


def _list_of(item: Object) -> Object:
    return {"type": "array", "items": item}


NUMBER: Final[Object] = {"type": "integer"}
TEXT: Final[Object] = {"type": "string"}
FLAG: Final[Object] = {"type": "boolean"}
OPEN: Final[Object] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEMPLATE: Final = _object(
    metadata={"type": "object"},
    spec=_object(containers=_list_of(_object(name=TEXT)), nodeSelector=OPEN),
)
CONDITIONS: Final = _list_of(_object(type=TEXT, status=TEXT))


def definition(kind: str, *, spec: Object, status: Object | None = None) -> Object:
    plural = f"{kind.lower()}s"
    schema = _object(metadata={"type": "object"}, spec=spec, status=status or _object())
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


GADGETS: Final = definition(
    "Gadget",
    spec=_object(suspend=FLAG, replicas=NUMBER, label=TEXT, template=TEMPLATE, anything=OPEN),
    status=_object(conditions=CONDITIONS, active=NUMBER),
)
WIDE: Final = definition(
    "Gadget",
    spec=_object(
        suspend=FLAG,
        replicas=NUMBER,
        template=TEMPLATE,
        labels={"type": "object", "additionalProperties": TEXT},
        flags={"type": "object", "additionalProperties": True},
        parts=_list_of(_object(name=TEXT)),
        embedded={"type": "object", "x-kubernetes-embedded-resource": True},
        pod=_object(spec=_object(nodeSelector=OPEN)),
    ),
)
"""Gadgets with what an object may have without a field in the schema."""

ROLES: Final = definition(
    "Training",
    spec=_object(
        runPolicy=_object(suspend=FLAG, managedBy=TEXT),
        roles={
            "type": "object",
            "additionalProperties": _object(replicas=NUMBER, template=TEMPLATE),
        },
    ),
    status=_object(phase={"type": "string", "enum": ["Running", "Succeeded", "Failed"]}),
)
GROUPS: Final = definition(
    "Cluster",
    spec=_object(
        suspend=FLAG,
        head=_object(template=TEMPLATE),
        workers=_list_of(_object(groupName=TEXT, replicas=NUMBER, template=TEMPLATE)),
    ),
)
PAIRS: Final = definition(
    "Pair", spec=_object(suspend=FLAG, leaderTemplate=TEMPLATE, workerTemplate=TEMPLATE)
)
WRAPS: Final = definition(
    "Wrap",
    spec=_object(
        suspend=FLAG,
        parts=_list_of(
            _object(
                body={"type": "object", "x-kubernetes-embedded-resource": True},
                pods=_list_of(_object(at=TEXT, many=NUMBER)),
                infos=_list_of(_object(nodeSelector=OPEN)),
            )
        ),
    ),
)
"""A kind that wraps others."""

BARE: Final = definition("Bare", spec=_object(command=TEXT))
