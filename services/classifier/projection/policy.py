"""Which jobs are managed and how their requests count, from Kueue's configuration. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from services.classifier.projection.pods.resource_transformations import (
    ResourceTransformations,
    Transformation,
)
from shared.contracts.kube.quantities import parse_quantity
from shared.settings.configuration import Configuration, ResourceTransformation


@dataclass(frozen=True, slots=True)
class Policy:
    """The part of a configuration that the classifier uses."""

    configuration: Configuration
    transformations: ResourceTransformations

    @classmethod
    def of(cls, configuration: Configuration) -> "Policy":
        """Return the policy of a configuration."""
        resources = configuration.resources
        transformations = ResourceTransformations(
            excluded=resources.exclude_resource_prefixes,
            by_input={one.input: _transformation(one) for one in resources.transformations},
        )
        return cls(configuration, transformations)

    @property
    def manage_without_queue(self) -> bool:
        """True: jobs without a queue are held too, until somebody gives them one."""
        return self.configuration.manage_jobs_without_queue_name

    def manages(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether jobs in a namespace with these labels are managed."""
        return self.configuration.managed_jobs_namespace_selector.matches(namespace, labels)


def _transformation(given: ResourceTransformation) -> Transformation:
    return Transformation(
        retain=given.strategy == "Retain",
        outputs={name: parse_quantity(text) for name, text in given.outputs.items()},
        multiply_by=given.multiply_by,
    )


DEFAULT_POLICY: Final = Policy.of(Configuration())
