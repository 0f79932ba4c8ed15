"""Checks that the services' accounts have the permissions that `deploy/kubernetes` gives them."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import yaml

from services.ctl.doctor.findings import Finding
from shared.contracts.kube.kinds import SUBJECT_ACCESS_REVIEW
from shared.kube.port import Kube, RefusedError

Json = dict[str, Any]

ROLES: Final = Path(__file__).parents[3] / "deploy" / "kubernetes" / "base"
ACCOUNT: Final = "system:serviceaccount"
SHOWN: Final = 3


async def missing_permissions(kube: Kube, *, namespace: str) -> list[Finding]:
    """One finding for each account that lacks permissions, or one if reviews are not allowed.

    `namespace` is that of the services. Raises a `KubeError` if the cluster does not answer.
    """
    found = []
    for path in sorted(ROLES.glob("*/rbac.yaml")):
        service = path.parent.name
        lacking = []
        for attributes in _required(path, namespace):
            try:
                if not await _is_allowed(kube, f"{ACCOUNT}:{namespace}:{service}", attributes):
                    lacking.append(_text(attributes))
            except RefusedError as error:
                return [_not_reviewable(error)]
        if lacking:
            found.append(_missing(service, namespace, lacking))
    return found


def _required(path: Path, namespace: str) -> Iterator[Json]:
    """`resourceAttributes` of everything that the roles of one service allow."""
    for document in yaml.safe_load_all(path.read_text()):
        where = {"namespace": namespace} if document["kind"] == "Role" else {}
        for rule in document.get("rules") or []:
            names = rule.get("resourceNames") or [""]
            combined = product(rule["apiGroups"], rule["resources"], names, rule["verbs"])
            for group, whole, name, verb in combined:
                resource, _, subresource = whole.partition("/")
                given = {"group": group, "resource": resource, "subresource": subresource}
                given |= {"name": name, "verb": verb, **where}
                yield {key: value for key, value in given.items() if value}


async def _is_allowed(kube: Kube, user: str, attributes: Json) -> bool:
    spec = {"user": user, "groups": _groups(user), "resourceAttributes": attributes}
    review = await kube.create(SUBJECT_ACCESS_REVIEW, {"metadata": {}, "spec": spec})
    return bool((review.get("status") or {}).get("allowed"))


def _groups(user: str) -> list[str]:
    namespace = user.split(":")[2]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]


def _text(attributes: Json) -> str:
    resource = attributes["resource"]
    if subresource := attributes.get("subresource"):
        resource += f"/{subresource}"
    if group := attributes.get("group"):
        resource += f".{group}"
    return f"{attributes['verb']} {resource}"


def _missing(service: str, namespace: str, lacking: list[str]) -> Finding:
    more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
    return Finding(
        where=f"service account {namespace}/{service}",
        problem=f"may not {', '.join(lacking[:SHOWN])}{more}",
        advice=f"apply deploy/kubernetes/base/{service}/rbac.yaml; "
        "`--service-namespace` names another namespace",
    )


def _not_reviewable(error: RefusedError) -> Finding:
    return Finding(
        where="permissions",
        problem=f"cannot be looked at: {error}",
        advice="take a kubeconfig that may create subjectaccessreviews",
        wrong=False,
    )
