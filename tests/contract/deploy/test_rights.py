"""Watcher and patcher have the rights that they use, and no others: worlds of them are listened to."""

from typing import Final

import pytest

from services.watcher.scopes import KNOWN
from shared.integrations import INTEGRATIONS as SHIPPED
from shared.integrations import WHERE_SERVED
from tests.contract.deploy.rendering import COMPONENTS, Json, kustomized, named
from tests.contract.deploy.rights import SPOKE, Right, asked, granted

SEEDS: Final = range(1, 6)
RETENTION: Final = "services/patcher/workloads/retention.py"
INTEGRATIONS: Final = "services/patcher/cluster/integrations.py"
ELSEWHERE: Final = "as with Jobs: services/patcher/jobs/controller.py, multikueue/hub_status.py"
COPIES: Final = "as with Jobs: services/patcher/multikueue/copies.py"
RECREATION: Final = "services/patcher/jobs/recreation.py"
FINALIZERS: Final = "where the webhook did not answer: services/patcher/cluster/finalizers.py"
LOOKED_AT: Final = "asked by nobody: admission looks whether we might"
QUEUE_STATUS: Final = "where there are Cohorts: services/patcher/cluster/queue_status.py"
PROVISIONING: Final = "services/patcher/provisioning/controller.py"
REQUESTS: Final = ("autoscaling.x-k8s.io", "provisioningrequests")
PROFILES: Final = ("multicluster.x-k8s.io", "clusterprofiles")
JOBSETS: Final = ("jobset.x-k8s.io", "jobsets")
ML_KINDS: Final = sorted((kind.group, kind.plural) for kind in WHERE_SERVED)
AS_JOBS: Final = "as with Jobs, in a cluster that serves the kind"
BY_ALL_WATCHERS: Final[dict[Right, str]] = {
    **{(verb, *kind): AS_JOBS for kind in ML_KINDS for verb in ("list", "watch")},
    ("list", "", "nodes"): "where SLUICE_KINDS names them",
    ("watch", "", "nodes"): "where SLUICE_KINDS names them",
    ("watch", *REQUESTS): "where a cluster serves them",
    **{(verb, *PROFILES): "where a cluster serves them" for verb in ("list", "watch")},
}
BY_ALL_PATCHERS: Final[dict[Right, str]] = {
    ("delete", "kueue.x-k8s.io", "workloads"): RETENTION,
    ("get", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"): INTEGRATIONS,
    ("patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"): INTEGRATIONS,
    ("patch", "sluicegate.dev", "integrations/status"): INTEGRATIONS,
    ("list", "sluicegate.dev", "integrations"): INTEGRATIONS,
    ("get", "apiextensions.k8s.io", "customresourcedefinitions"): INTEGRATIONS,
    ("get", "kueue.x-k8s.io", "resourceflavors"): FINALIZERS,
    ("patch", "kueue.x-k8s.io", "resourceflavors"): FINALIZERS,
    ("patch", "kueue.x-k8s.io", "clusterqueues"): FINALIZERS,
    ("get", *JOBSETS): ELSEWHERE,
    ("patch", *JOBSETS): ELSEWHERE,
    ("patch", "jobset.x-k8s.io", "jobsets/status"): ELSEWHERE,
    ("delete", *JOBSETS): RETENTION,
    ("update", "jobset.x-k8s.io", "jobsets/finalizers"): AS_JOBS,
    **{(verb, *REQUESTS): PROVISIONING for verb in ("get", "create", "delete")},
    **{(verb, "", "podtemplates"): PROVISIONING for verb in ("get", "create", "patch")},
    **{(verb, *kind): AS_JOBS for kind in ML_KINDS for verb in ("get", "patch", "delete")},
    **{("patch", group, f"{plural}/status"): AS_JOBS for group, plural in ML_KINDS},
    **{("update", group, f"{plural}/finalizers"): AS_JOBS for group, plural in ML_KINDS},
    ("get", "kueue.x-k8s.io", "cohorts"): QUEUE_STATUS,
    ("patch", "kueue.x-k8s.io", "cohorts/status"): QUEUE_STATUS,
}  # fmt: skip
UNSEEN: Final[dict[str, dict[Right, str]]] = {
    "watcher": BY_ALL_WATCHERS,
    "watcher" + SPOKE: BY_ALL_WATCHERS,
    "patcher": {
        **BY_ALL_PATCHERS,
        ("delete", "batch", "jobs"): RETENTION,
        ("delete", "tekton.dev", "pipelineruns"): f"{RETENTION}, {RECREATION}",
        ("create", "tekton.dev", "pipelineruns"): RECREATION,
        ("patch", "", "pods/status"): "why a pod is deleted: services/patcher/jobs/gated.py",
        ("update", "", "pods/finalizers"): LOOKED_AT,
    },
    "patcher" + SPOKE: {
        **BY_ALL_PATCHERS,
        ("create", *JOBSETS): COPIES,
        ("list", *JOBSETS): COPIES,
        **{(verb, *kind): COPIES for kind in ML_KINDS for verb in ("create", "list")},
    },
}
"""What these worlds do not show, and why it is needed all the same."""


def rights_of(service: str) -> set[Right]:
    """What the manifests grant, with the roles that are aggregated."""
    is_spoke = service.endswith(SPOKE)
    objects = named(kustomized("spoke") if is_spoke else kustomized("hub", ("pods", "recreation")))
    name = f"sluicegate-{service.removesuffix(SPOKE)}"
    kinds = [("ClusterRole", name), ("Role", f"{name}-seal")]
    kinds += [("ClusterRole", f"{name}-{part}") for part in ("copies", "pods", "recreation")]
    rules: list[Json] = [
        rule for kind in kinds if kind in objects for rule in objects[kind]["rules"]
    ]
    return {right for right, _ in granted(rules)}


def test_granted_rights_equal_used_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    def idle(found: dict[str, set[Right]]) -> dict[str, set[Right]]:
        """What is not used. A spoke's pair has the role of a hub's: what that shows counts."""
        return {
            one: rights_of(one) - used - found[one.removesuffix(SPOKE)] - UNSEEN[one].keys()
            for one, used in found.items()
        }

    found = asked(monkeypatch, seeds=SEEDS, enough=lambda found: not any(idle(found).values()))
    for service, used in found.items():
        assert used - rights_of(service) == set(), f"{service} would be refused"
        assert idle(found)[service] == set(), f"{service} has what it does not use"
        assert UNSEEN[service].keys() <= rights_of(service), "no excuse outlives its right"


def test_patcher_of_hub_creates_no_jobs() -> None:
    objects = named(kustomized("hub", tuple(set(COMPONENTS) - {"recreation"})))
    rules = [
        rule
        for (kind, name), role in objects.items()
        if kind == "ClusterRole" and name.startswith("sluicegate-patcher")
        for rule in role["rules"]
    ]
    made = {resource for (verb, _, resource), _ in granted(rules) if verb in {"create", "*"}}
    assert made == {
        "workloads", "events", "secrets", "statefulsets", "persistentvolumeclaims",
        "provisioningrequests", "podtemplates", "integrations",
    }  # fmt: skip


def test_watcher_may_watch_every_configurable_kind() -> None:
    for kind in KNOWN.values():
        wanted = {("list", kind.group, kind.plural), ("watch", kind.group, kind.plural)}
        assert wanted <= rights_of("watcher"), kind.plural


def test_webhook_reviews_creation_and_change_of_every_shipped_kind() -> None:
    objects = named(kustomized("hub"))
    reviewed = {
        (operation, group, version, plural)
        for webhook in objects["MutatingWebhookConfiguration", "sluicegate-classifier"]["webhooks"]
        for rule in webhook["rules"]
        for operation in rule["operations"]
        for group in rule["apiGroups"]
        for version in rule["apiVersions"]
        for plural in rule["resources"]
    }
    for kind in (integration.kind for integration in SHIPPED):
        for operation in ("CREATE", "UPDATE"):
            assert (operation, kind.group, kind.version, kind.plural) in reviewed


def test_console_has_only_token_and_access_reviews() -> None:
    assert rights_of("console") == {
        ("create", "authentication.k8s.io", "tokenreviews"),
        ("create", "authorization.k8s.io", "subjectaccessreviews"),
    }


def test_no_other_service_account_has_rights() -> None:
    subjects = {
        subject["name"]
        for one in kustomized("hub", COMPONENTS)
        if one["kind"] in {"ClusterRoleBinding", "RoleBinding"}
        for subject in one["subjects"]
    }
    assert subjects == {"watcher", "patcher", "console"}
