"""The kinds of jobs that can wait: how each is recognised, held, released, counted and finished.

A kind is a document: `documents/*.yaml`, or an `Integration` object of the cluster. No service has code
for a single kind.

A document and an object enter. Facts about the object, or JSON patches for it, leave.
`docs/reference/integration.md` describes the fields of a document.
"""

from shared.contracts.tekton import TEKTON_SLOT
from shared.integrations.errors import IntegrationError, ObjectError, Problem
from shared.integrations.integration import Integration
from shared.integrations.registry import (
    INTEGRATIONS,
    SHIPPED,
    WHERE_SERVED,
    Integrations,
    IntegrationState,
    controller_uid,
    integration_for,
    opted_documents,
    queue_of,
)
from shared.integrations.writing.templates import PodSetInfo

__all__ = [
    "INTEGRATIONS",
    "JOB",
    "JOB_SET",
    "PIPELINE_RUN",
    "SHIPPED",
    "TEKTON_SLOT",
    "WHERE_SERVED",
    "Integration",
    "IntegrationError",
    "IntegrationState",
    "Integrations",
    "ObjectError",
    "PodSetInfo",
    "Problem",
    "controller_uid",
    "integration_for",
    "opted_documents",
    "queue_of",
]

PIPELINE_RUN, JOB, JOB_SET = INTEGRATIONS[:3]
