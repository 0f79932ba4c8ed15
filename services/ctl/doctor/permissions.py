"""Checks that the services' accounts have the permissions that `deploy/kubernetes` gives them.

They also need those for the kinds of the cluster's own Integrations.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, Final

import yaml

from services.ctl.doctor.findings import Finding
from shared.contracts.kube.kinds import INTEGRATION, SUBJECT_ACCESS_REVIEW, Kind, Object
from shared.kube.port import Kube, NotFoundError, RefusedError

Json = dict[str, Any]

ROLES: Final = Path(__file__).parents[3] / "deploy" / "kubernetes" / "base"
ACCOUNT: Final = "system:serviceaccount"
SHOWN: Final = 3
ASKED_AT_ONCE_MAX: Final = 16
"""Reviews that are asked for together: so many connections has the client.

There are some 200. Answers of 20 ms each, one after the other, would take four seconds.
"""

OF_KINDS: Final = {
    "watcher": ("list", "watch"),
    "patcher": ("get", "patch", "delete", "update finalizers"),
}
"""What a service does with every kind that waits.

No request names the last of the patcher's. An API server with the plugin OwnerReferencesPermissionEnforcement
wants it of whoever makes a Workload that blocks the deletion of its job.
"""


async def missing_permissions(kube: Kube, *, namespace: str) -> list[Finding]:
    """One finding for each account that lacks permissions, or one if reviews are not allowed.

    `namespace` is that of the services. Raises a `KubeError` if the cluster does not answer.
    """
    found = []
    try:
        for path in sorted(ROLES.glob("*/rbac.yaml")):
            service = path.parent.name
            if lacking := await _lacking(kube, namespace, service, _required(path, namespace)):
                advice = (
                    f"apply deploy/kubernetes/base/{service}/rbac.yaml; "
                    "`--service-namespace` names another namespace"
                )
                found.append(_missing(service, namespace, lacking, advice))
        own = await _own_kinds(kube)
        for service, verbs in OF_KINDS.items():
            wanted = (attributes for kind in own for attributes in _of_kind(kind, verbs))
            if lacking := await _lacking(kube, namespace, service, wanted):
                advice = (
                    "give a ClusterRole that allows it the label "
                    f'sluicegate.dev/aggregate-to-{service}: "true" (docs/tutorial/integration.md)'
                )
                found.append(_missing(service, namespace, lacking, advice))
    except RefusedError as error:
        return [_not_reviewable(error)]
    return found


async def _own_kinds(kube: Kube) -> list[Kind]:
    """The kinds of the cluster's Integration objects whose objects wait."""
    objects: Sequence[Object] = ()
    with suppress(NotFoundError):  # An older installation does not serve them.
        objects = (await kube.list(INTEGRATION)).items
    if not objects:
        return []
    # Imported where it is needed: that takes an eighth of the command's time.
    from shared.integrations import IntegrationError, Integrations  # noqa: PLC0415

    integrations = Integrations(shipped=())
    for obj in objects:
        with suppress(IntegrationError):  # Its status says so.
            integrations.apply(obj)
    return [integration.kind for integration in integrations]


def _of_kind(kind: Kind, verbs: Iterable[str]) -> Iterator[Json]:
    for words in verbs:
        verb, _, subresource = words.partition(" ")
        given = {"group": kind.group, "resource": kind.plural, "verb": verb}
        yield given | ({"subresource": subresource} if subresource else {})


async def _lacking(kube: Kube, namespace: str, service: str, wanted: Iterable[Json]) -> list[str]:
    """What of `wanted` the service's account may not do, in the same order."""
    user = f"{ACCOUNT}:{namespace}:{service}"
    asked, found = list(wanted), []
    for first in range(0, len(asked), ASKED_AT_ONCE_MAX):
        together = asked[first : first + ASKED_AT_ONCE_MAX]
        reviews = (_is_allowed(kube, user, each) for each in together)
        # An exception is raised when all have answered: none of them may outlive the client.
        answers = await asyncio.gather(*reviews, return_exceptions=True)
        for attributes, answer in zip(together, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            if not answer:
                found.append(_text(attributes))
    return found


def _required(path: Path, namespace: str) -> Iterator[Json]:
    """`resourceAttributes` of everything that the roles of one service allow."""
    for document in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader):
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


def _missing(service: str, namespace: str, lacking: list[str], advice: str) -> Finding:
    more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
    return Finding(
        where=f"service account {namespace}/{service}",
        problem=f"may not {', '.join(lacking[:SHOWN])}{more}",
        advice=advice,
    )


def _not_reviewable(error: RefusedError) -> Finding:
    return Finding(
        where="permissions",
        problem=f"cannot be looked at: {error}",
        advice="take a kubeconfig that may create subjectaccessreviews",
        wrong=False,
    )
