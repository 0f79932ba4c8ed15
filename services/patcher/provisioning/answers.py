"""What a provisioning check says about one workload, and which attempt is to be made. Pure.

The order of the conditions and the messages are those of kubernetes-sigs/kueue@ff69552
pkg/controller/admissionchecks/provisioning/controller.go (syncCheckStates).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.patcher.provisioning.requests import attempt_of, is_as_configured, pod_set_updates
from shared.contracts.kube.bodies import Body, spec_of
from shared.contracts.kube.conditions import (
    ADMITTED,
    EVICTED,
    FINISHED,
    QUOTA_RESERVED,
    find_condition,
    is_true,
    message_of,
)

INACTIVE: Final = "the check is not active"
NOT_NEEDED: Final = "the provisioning request is not needed"

BACKOFF_LIMIT_COUNT: Final = 3
BACKOFF_BASE_SECONDS: Final = 60
BACKOFF_MAX_SECONDS: Final = 1800
"""Defaults of `spec.retryStrategy`."""

State = dict[str, Any]
"""An entry of `status.admissionChecks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What becomes of one check of a workload."""

    state: State
    """The entry to write, without a new `lastTransitionTime`. Equal to the present one: nothing to write."""

    request: Body | None = None
    """The request that counts: the latest attempt."""

    next_attempt: int | None = None
    """The attempt to request now; None for none."""


def needs_requests(workload: Body) -> bool:
    """Whether requests may be made for the workload: it holds quota and is not being evicted."""
    return is_true(workload, QUOTA_RESERVED) and not ends_requests(workload)


def ends_requests(workload: Body) -> bool:
    """Whether its requests go. A reservation that is taken back without an eviction leaves them."""
    return is_true(workload, FINISHED, EVICTED)


def _latest_request(
    workload: Body, check: str, config: Mapping[str, Any], owned: Sequence[Body]
) -> tuple[Body | None, int]:
    """The request of the last attempt that is as configured, and the attempt; None and 0: there is none."""
    name, found = workload["metadata"]["name"], None
    latest = 0
    for request in owned:
        attempt = attempt_of(request["metadata"]["name"], name, check)
        if attempt is not None and attempt > latest and is_as_configured(request, config):
            found, latest = request, attempt
    return found, latest


def answer(
    workload: Body,
    state: State,
    config: Mapping[str, Any] | None,
    owned: Sequence[Body],
    *,
    needed: bool,
) -> Answer:
    """The answer of one check. `config`: its parameters; None if they are not there."""
    if config is None:
        return Answer(state=_with_state(state, "Pending", INACTIVE))
    if not needed:
        is_ready = state.get("state") == "Ready"
        return Answer(state=state if is_ready else _with_state(state, "Ready", NOT_NEEDED))
    request, attempt = _latest_request(workload, str(state.get("name")), config, owned)
    if request is None:
        retries = int(state.get("retryCount") or 0)
        waits = state.get("state") == "Pending"
        return Answer(state=state, next_attempt=retries + 1 if waits else None)
    new = _of_request(workload, state, config, request, attempt)
    is_over = is_true(request, "Failed") or (
        is_true(request, "BookingExpired") and not is_true(workload, ADMITTED)
    )
    again = is_over and new.get("state") == "Pending"
    return Answer(state=new, request=request, next_attempt=attempt + 1 if again else None)


def _of_request(
    workload: Body, state: State, config: Mapping[str, Any], request: Body, attempt: int
) -> State:
    """The state that follows from the conditions of a request."""
    for condition in ("Failed", "CapacityRevoked", "BookingExpired", "Provisioned", "Accepted"):
        if not is_true(request, condition):
            continue
        message = message_of(find_condition(request, condition))
        match condition:
            case "Failed":
                return _retried(state, config, attempt, "failure", message)
            case "CapacityRevoked":
                # Its nodes are gone: the pods of a replacement would wait forever.
                is_live = spec_of(workload).get("active", True)
                return _with_state(state, "Rejected", message) if is_live else state
            case "BookingExpired":
                if is_true(workload, ADMITTED):
                    return state  # Its pods run on what was booked.
                return _retried(state, config, attempt, "booking expired", message)
            case "Provisioned":
                if state.get("state") == "Ready":
                    return state
                updates = pod_set_updates(workload, request, config)
                return {**_with_state(state, "Ready", message), "podSetUpdates": updates}
            case "Accepted":
                eta = find_condition(request, "Provisioned")
                return state if eta is None else _with_state(state, "Pending", message_of(eta))
    return _with_state(state, "Pending", "")


def _retried(
    state: State, config: Mapping[str, Any], attempt: int, what: str, message: str
) -> State:
    """Retry after a failed attempt, or rejected if it was the last one."""
    strategy = config.get("retryStrategy") or {}
    if attempt > int(strategy.get("backoffLimitCount", BACKOFF_LIMIT_COUNT)):
        return _with_state(state, "Rejected", message)
    retries = int(state.get("retryCount") or 0)
    text = f"Retrying after {what}: {message}"
    if attempt <= retries:
        # The eviction that followed from this attempt is over.
        return {**state, "message": text}
    base = int(strategy.get("backoffBaseSeconds", BACKOFF_BASE_SECONDS))
    most = int(strategy.get("backoffMaxSeconds", BACKOFF_MAX_SECONDS))
    seconds = min(base * 2 ** min(retries, 30), most)
    return {**_with_state(state, "Retry", text), "requeueAfterSeconds": max(0, seconds)}


def _with_state(state: State, now: str, message: str) -> State:
    new = {**state, "state": now, "message": message}
    if now != "Ready":
        new.pop("podSetUpdates", None)
    if now != "Retry":
        new.pop("requeueAfterSeconds", None)
    return new
