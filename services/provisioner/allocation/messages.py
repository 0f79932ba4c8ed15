"""Texts for users: why a TaskRun waits or fails. Pure."""

from collections.abc import Iterable, Mapping
from textwrap import shorten
from typing import Final

REASONS_MAX: Final = 5
"""Failed hosts that a message gives a reason for: an event of Kubernetes holds 1024 characters."""
REASON_MAX: Final = 160
"""Characters of one reason."""

_FAILED: Final = "Error allocating host: "


def failure_note(failed: Mapping[str, str]) -> str:
    """Which hosts failed for a TaskRun and why. Empty if none did. `failed`: host to reason."""
    reasons = [
        f"{host} failed: {shorten(reason, REASON_MAX, placeholder=' …')}"
        for host, reason in failed.items()
        if reason
    ]
    more = len(reasons) - REASONS_MAX
    return "; ".join(reasons[:REASONS_MAX]) + (f"; and {more} more" if more > 0 else "")


def all_hosts_busy(platform: str, failed: Mapping[str, str]) -> str:
    """Why a TaskRun waits for a static host."""
    return _noted(f"all hosts of {platform} are busy", failed)


def all_hosts_failed(hosts: Iterable[str], failed: Mapping[str, str]) -> str:
    """Why a TaskRun fails that no host is left for."""
    names = ",".join(sorted(hosts))
    text = f"{_FAILED}all available hosts for the platform have failed: {names}"
    return _noted(text, failed)


def machines_failed(count: int, reason: str) -> str:
    """Why a TaskRun fails after `count` machines. `reason`: of the last one."""
    return f"{_FAILED}{count} machines failed to start, the last because {reason}"


def machines_used(count: int, *, most: int, tag: str) -> str:
    """Why a TaskRun waits for a machine."""
    return f"{count} of {most} maxInstances running for {tag}, waiting for existing tasks to finish"


def namespace_limited(namespace: str) -> str:
    """Why a TaskRun of no admitted run waits though a host is free."""
    return (
        f"namespace {namespace}: TaskRuns that belong to no admitted PipelineRun have as many hosts as "
        "they may have at a time (SLUICE_DIRECT_TASK_RUNS_MAX)"
    )


def run_limited(namespace: str) -> str:
    """Why a TaskRun of an admitted run waits though a host is free."""
    return (
        "the PipelineRun has no quota left for another host of this platform, and in namespace "
        f"{namespace} as many have a host without quota as may have one at a time "
        "(SLUICE_DIRECT_TASK_RUNS_MAX)"
    )


def _noted(text: str, failed: Mapping[str, str]) -> str:
    note = failure_note(failed)
    return f"{text} ({note})" if note else text
