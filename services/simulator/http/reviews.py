"""TokenReview and SubjectAccessReview, answered from the cluster's Secrets and RBAC objects.

The simulator itself accepts requests without a token, and believes who names a service account. Tokens
under review come from Secrets of the type ``kubernetes.io/service-account-token``: the creator of such a
Secret chooses the token.
"""

import base64
import binascii
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final

from services.simulator.cluster.api import Api
from services.simulator.cluster.errors import ApiError
from services.simulator.cluster.kinds.catalogue import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
)
from services.simulator.cluster.kinds.registry import Kind

IDENTITY_PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

TOKEN_TYPE: Final = "kubernetes.io/service-account-token"  # noqa: S105 - the name of a type
ACCOUNT: Final = "kubernetes.io/service-account.name"
EVERYBODY: Final = "system:authenticated"

ADMINISTRATOR: Final = "kubernetes-admin"
_ACCOUNTS: Final = "system:serviceaccount:"

requester: ContextVar[str] = ContextVar("requester", default=ADMINISTRATOR)
"""Name of the user whose request is being answered."""

Json = dict[str, Any]


def user_of(authorization: str) -> str:
    """Return who sends a request: the service account named by its bearer token, or the administrator."""
    name = authorization.removeprefix("Bearer ")
    return name if name.startswith(_ACCOUNTS) else ADMINISTRATOR


def token_review(api: Api, review: Any) -> Json:
    """Return the review with its status: the user of the token, or that it is unknown."""
    spec = _spec(review, "TokenReview")
    token = str(spec.get("token") or "")
    status: Json = {"authenticated": False, "user": {}}
    for stored in api.store.objects(SECRETS) if token else ():
        secret = stored.obj
        account = (secret["metadata"].get("annotations") or {}).get(ACCOUNT)
        if secret.get("type") == TOKEN_TYPE and account and _token_of(secret) == token:
            status = {"authenticated": True, "user": _account(stored.namespace, account)}
            break
    return {**review, "spec": spec, "status": status}


def _token_of(secret: Json) -> str | None:
    try:
        return base64.b64decode((secret.get("data") or {}).get("token") or "").decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _account(namespace: str, name: str) -> Json:
    """Return the user name of a ServiceAccount."""
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", EVERYBODY]
    return {"username": f"{_ACCOUNTS}{namespace}:{name}", "groups": groups}


def access_review(api: Api, review: Any) -> Json:
    """Return the review with its status: allowed if a role that is bound to the user allows it."""
    spec = _spec(review, "SubjectAccessReview")
    wanted = spec.get("resourceAttributes")
    if not isinstance(wanted, dict):
        raise _invalid("SubjectAccessReview", "spec.resourceAttributes: Required value")
    user, groups = str(spec.get("user") or ""), list(spec.get("groups") or [])
    if not user and not groups:
        raise _invalid("SubjectAccessReview", "spec.user: Required value: or spec.groups")
    allowed = "system:masters" in groups or any(
        _allows(rule, wanted)
        for rule in _rules(api, user, groups, str(wanted.get("namespace") or ""))
    )
    return {**review, "spec": spec, "status": {"allowed": allowed}}


def _rules(api: Api, user: str, groups: list[str], namespace: str) -> Iterator[Json]:
    """Return the rules of all roles that are bound to the user in this namespace."""
    bindings = [stored.obj for stored in api.store.objects(CLUSTER_ROLE_BINDINGS)]
    if namespace:
        bindings += [stored.obj for stored in api.store.objects(ROLE_BINDINGS, namespace)]
    for binding in bindings:
        if any(_is_meant(subject, user, groups) for subject in binding.get("subjects") or []):
            ref = binding.get("roleRef") or {}
            of_cluster = ref.get("kind") == "ClusterRole"
            kind: Kind = CLUSTER_ROLES if of_cluster else ROLES
            where = "" if of_cluster else binding["metadata"].get("namespace", "")
            role = api.store.get(kind, where, str(ref.get("name") or ""))
            yield from (role.obj.get("rules") or []) if role is not None else ()


def _is_meant(subject: Json, user: str, groups: list[str]) -> bool:
    match subject.get("kind"):
        case "ServiceAccount":
            name = f"{_ACCOUNTS}{subject.get('namespace')}:{subject.get('name')}"
            return user == name
        case "Group":
            return subject.get("name") in groups
        case _:
            return subject.get("name") == user


def _allows(rule: Json, wanted: Json) -> bool:
    resource = str(wanted.get("resource") or "")
    if subresource := wanted.get("subresource"):
        resource = f"{resource}/{subresource}"
    names = rule.get("resourceNames") or []
    return (
        _has(rule, "verbs", wanted.get("verb"))
        and _has(rule, "apiGroups", wanted.get("group") or "")
        and _has(rule, "resources", resource)
        and (not names or wanted.get("name") in names)
    )


def _has(rule: Json, field: str, value: Any) -> bool:
    values = rule.get(field) or []
    return "*" in values or value in values


def _spec(review: Any, kind: str) -> Json:
    spec = review.get("spec") if isinstance(review, dict) else None
    if not isinstance(spec, dict):
        raise _invalid(kind, "spec: Required value")
    return spec


def _invalid(kind: str, problem: str) -> ApiError:
    return ApiError(422, "Invalid", f'{kind} "" is invalid: {problem}')
