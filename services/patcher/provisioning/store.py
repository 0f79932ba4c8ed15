"""What is known of one cluster's provisioning checks: checks, parameters, Workloads, requests, flavors."""

from collections.abc import Iterator
from typing import Final

from shared.contracts.controllers import PROVISIONING
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body, spec_of, status_of, version_of
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.refs import ObjectRef, WorkloadRef

NOT_SERVED: Final = (
    f"{kinds.PROVISIONING_REQUEST.plural}.{kinds.PROVISIONING_REQUEST.group} are not read: install the "
    "cluster autoscaler's CustomResourceDefinition, and let SLUICE_KINDS of the watcher name them"
)


class ProvisioningStore:
    """Applies observed objects. Says which checks and workloads each of them concerns."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self.checks: dict[str, Body] = {}
        """AdmissionChecks of the provisioning controller."""

        self.flavors: dict[str, Body] = {}
        self._configs: dict[str, Body] = {}
        self._workloads: dict[WorkloadRef, Body] = {}
        """Those that list an admission check."""

        self._requests: dict[ObjectRef, Body] = {}
        self._requests_of: dict[str, set[ObjectRef]] = {}
        """Uid of a Workload to its requests."""

        self._is_served: bool | None = None
        """None until the watcher has listed the cluster."""

    # --- input ---

    def apply_check(self, observed: Observed) -> None:
        """Apply an AdmissionCheck."""
        body = None if observed.deleted else observed.body
        if body is not None and spec_of(body).get("controllerName") == PROVISIONING:
            self.checks[observed.name] = body
        else:
            self.checks.pop(observed.name, None)

    def apply_config(self, observed: Observed) -> None:
        """Apply a ProvisioningRequestConfig."""
        _set(self._configs, observed.name, observed)

    def apply_flavor(self, observed: Observed) -> None:
        """Apply a ResourceFlavor."""
        _set(self.flavors, observed.name, observed)

    def apply_workload(self, observed: Observed) -> None:
        """Apply a Workload."""
        workload = self._workload_ref(observed.namespace, observed.name)
        body = None if observed.deleted else observed.body
        if body is None:
            self._workloads.pop(workload, None)
        elif status_of(body).get("admissionChecks") or body["metadata"]["uid"] in self._requests_of:
            self.store_workload(body)
        else:
            self._workloads.pop(workload, None)

    def store_workload(self, body: Body) -> None:
        """Store what the API server answered, unless a newer state is known."""
        metadata = body["metadata"]
        workload = self._workload_ref(metadata["namespace"], metadata["name"])
        if version_of(body) >= version_of(self._workloads.get(workload)):
            self._workloads[workload] = body

    def apply_request(self, observed: Observed) -> WorkloadRef | None:
        """Apply a ProvisioningRequest; return the Workload that controls it, None if there is none."""
        request = self._request_ref(observed.namespace, observed.name)
        known = self._requests.pop(request, None)
        if known is not None:
            self._forget_owner(request, known)
        body = observed.body
        if body is None:
            return self._owner(known)
        if not observed.deleted:
            self.store_request(body)
        return self._owner(body)

    def store_request(self, body: Body) -> None:
        """Store a request that was created or read just now."""
        request = self._request_ref(body["metadata"]["namespace"], body["metadata"]["name"])
        self._requests[request] = body
        for uid in _owner_uids(body):
            self._requests_of.setdefault(uid, set()).add(request)

    def remove_request(self, body: Body) -> None:
        """Remove a request that the API server does not have any more."""
        request = self._request_ref(body["metadata"]["namespace"], body["metadata"]["name"])
        if (known := self._requests.pop(request, None)) is not None:
            self._forget_owner(request, known)

    def apply_synced(self, synced: Synced) -> None:
        """Apply which kinds the watcher reads."""
        self._is_served = kinds.PROVISIONING_REQUEST.detail in synced.kinds

    def _forget_owner(self, request: ObjectRef, body: Body) -> None:
        for uid in _owner_uids(body):
            of_owner = self._requests_of.get(uid, set())
            of_owner.discard(request)
            if not of_owner:
                self._requests_of.pop(uid, None)

    def _owner(self, request: Body | None) -> WorkloadRef | None:
        """The Workload that controls a request; None if there is none."""
        if request is None:
            return None
        metadata = request["metadata"]
        for owner in metadata.get("ownerReferences") or []:
            if owner.get("controller") and owner.get("kind") == kinds.WORKLOAD.kind:
                return self._workload_ref(metadata.get("namespace"), owner["name"])
        return None

    def _workload_ref(self, namespace: str | None, name: str) -> WorkloadRef:
        return WorkloadRef(self._cluster, namespace or "", name)

    def _request_ref(self, namespace: str | None, name: str) -> ObjectRef:
        kind = kinds.PROVISIONING_REQUEST.kind
        return ObjectRef(self._cluster, kind, namespace or "", name)

    # --- output ---

    def workload(self, workload: WorkloadRef) -> Body | None:
        """The newest known state of a Workload with checks; None if there is none."""
        return self._workloads.get(workload)

    def workloads(self) -> Iterator[WorkloadRef]:
        """Every Workload with checks."""
        return iter(tuple(self._workloads))

    def requests_of(self, workload: Body) -> list[Body]:
        """The requests that a Workload controls, without those that are being deleted."""
        requests = sorted(self._requests_of.get(workload["metadata"]["uid"], ()))
        found = (self._requests[request] for request in requests)
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def config_of(self, check: str) -> Body | None:
        """The parameters of a check; None if they are not there."""
        return None if self._problem_of(check) else self._configs[self._config_name(check)]

    def condition_of(self, check: str) -> tuple[bool, str, str] | None:
        """Status, reason and message of `Active` of a check; None while that is not known."""
        if self._is_served is None:
            return None
        if problem := self._problem_of(check):
            return False, "BadParametersRef", problem
        if not self._is_served:
            return False, "NotServed", NOT_SERVED
        return True, "Active", "The admission check is active"

    def _config_name(self, check: str) -> str:
        return str((spec_of(self.checks[check]).get("parameters") or {}).get("name") or "")

    def _problem_of(self, check: str) -> str:
        """Why the parameters of a check cannot be used, in Kueue's words; empty if they can."""
        wanted: Kind = kinds.PROVISIONING_REQUEST_CONFIG
        parameters = spec_of(self.checks[check]).get("parameters")
        if not parameters:
            return "missing parameters reference"
        bad = "bad parameters reference"
        if not parameters.get("name"):
            return f"empty name: {bad}"
        for field, expected in (("apiGroup", wanted.group), ("kind", wanted.kind)):
            if (value := parameters.get(field)) != expected:
                what = "group" if field == "apiGroup" else "kind"
                return f'wrong {what} "{value or ""}", expecting "{expected}": {bad}'
        name = self._config_name(check)
        resource = f"{wanted.plural}.{wanted.group}"
        return "" if name in self._configs else f'{resource} "{name}" not found'


def _set(known: dict[str, Body], name: str, observed: Observed) -> None:
    body = None if observed.deleted else observed.body
    if body is None:
        known.pop(name, None)
    else:
        known[name] = body


def _owner_uids(request: Body) -> list[str]:
    owners = request["metadata"].get("ownerReferences") or []
    return [owner["uid"] for owner in owners if owner.get("controller")]
