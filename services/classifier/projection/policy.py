"""Which jobs are managed and how their requests count, as Kueue's configuration says it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from services.classifier.projection.resource_transformations import Counting, Transformation
from shared.contracts.kube.quantities import parse_quantity
from shared.settings.configuration import Configuration, ResourceTransformation

__all__ = ["DEFAULT_POLICY", "Policy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """One configuration, as the classifier asks it."""

    configuration: Configuration
    counting: Counting

    @classmethod
    def of(cls, configuration: Configuration) -> "Policy":
        """Read what concerns the classifier."""
        resources = configuration.resources
        counting = Counting(
            excluded=resources.exclude_resource_prefixes,
            transformations={one.input: _transformation(one) for one in resources.transformations},
        )
        return cls(configuration, counting)

    @property
    def manage_without_queue(self) -> bool:
        """Whether jobs that name no queue wait too, until somebody gives them one."""
        return self.configuration.manage_jobs_without_queue_name

    def manages(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether jobs in that namespace are our business at all."""
        return self.configuration.managed_jobs_namespace_selector.matches(namespace, labels)


def _transformation(given: ResourceTransformation) -> Transformation:
    return Transformation(
        retain=given.strategy == "Retain",
        outputs={name: parse_quantity(text) for name, text in given.outputs.items()},
        multiply_by=given.multiply_by,
    )


DEFAULT_POLICY: Final = Policy.of(Configuration())
