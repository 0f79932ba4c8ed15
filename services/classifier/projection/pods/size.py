"""Bounds what a state repeats of an object: each change of the workload writes all of it again. Pure."""

from typing import Final

import orjson

from shared.contracts.messages.workloads import PodSet

PLACEMENT_BYTES_MAX: Final = 192 * 1024
"""Bytes of node selectors, tolerations and node affinity of all pod sets together. Eighteen pod sets with
twenty tolerations and five large terms of affinity each have 123 KiB."""

REQUESTS_BYTES_MAX: Final = 128 * 1024
"""Bytes of the requests of all pod sets together: ten resources in each of 256 pod sets have 83 KiB."""

TEXT_CHARS_MAX: Final = 4096
"""Characters of a text for people: a reason, or the names of gates."""


def bounded(pod_sets: list[PodSet]) -> tuple[list[PodSet], list[str]]:
    """Return the pod sets as far as they fit into a state, and why they are too large.

    Such a workload is not admitted. What Kubernetes itself counts (cpu, memory) is kept first, in case that
    it runs all the same.
    """
    problems: list[str] = []
    placement = sum(map(_placement_bytes, pod_sets))
    if placement > PLACEMENT_BYTES_MAX:
        pod_sets = [one.without_placement() for one in pod_sets]
        problems.append(
            f"spec.podSets: nodeSelector, tolerations and nodeAffinity have {placement} bytes together: "
            f"at most {PLACEMENT_BYTES_MAX}"
        )
    requests = sum(len(orjson.dumps(one.requests)) for one in pod_sets)
    if requests > REQUESTS_BYTES_MAX:
        room = REQUESTS_BYTES_MAX // len(pod_sets)
        pod_sets = [one.with_requests(_some(one.requests, room)) for one in pod_sets]
        problems.append(
            f"spec.podSets: resources.requests have {requests} bytes together: at most {REQUESTS_BYTES_MAX}"
        )
    return pod_sets, problems


def clipped(text: str | None) -> str | None:
    """Return a text for people, or its beginning and how much is missing."""
    if text is None or len(text) <= TEXT_CHARS_MAX:
        return text
    return f"{text[:TEXT_CHARS_MAX]}… ({len(text) - TEXT_CHARS_MAX} characters more)"


def _placement_bytes(one: PodSet) -> int:
    return len(orjson.dumps([one.node_selector, one.tolerations, one.node_affinity]))


def _some(requests: dict[str, str], room: int) -> dict[str, str]:
    kept = {}
    for resource in sorted(requests, key=lambda name: ("/" in name, name)):
        room -= len(resource.encode()) + len(requests[resource]) + len('"":"",')
        if room < 0:
            break
        kept[resource] = requests[resource]
    return kept
