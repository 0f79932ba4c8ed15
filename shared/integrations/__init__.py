"""Kinds that can wait: how each is recognised, held, released, counted and finished.

A kind is a document (`documents/*.yaml`, or an `Integration` object of the cluster); no service has code
for a single kind. `docs/reference/integration.md` says what a document can say.
"""

from shared.contracts.tekton import TEKTON_SLOT
from shared.integrations.errors import IntegrationError, ObjectError, Problem
from shared.integrations.integration import Integration, PodSetInfo
from shared.integrations.registry import (
    INTEGRATIONS,
    SHIPPED,
    Integrations,
    Standing,
    controller_uid,
    integration_for,
    may_be_nested,
    queue_of,
)

__all__ = [
    "INTEGRATIONS",
    "JOB",
    "JOB_SET",
    "PIPELINE_RUN",
    "SHIPPED",
    "TEKTON_SLOT",
    "Integration",
    "IntegrationError",
    "Integrations",
    "ObjectError",
    "PodSetInfo",
    "Problem",
    "Standing",
    "controller_uid",
    "integration_for",
    "may_be_nested",
    "queue_of",
]

PIPELINE_RUN, JOB, JOB_SET = INTEGRATIONS
