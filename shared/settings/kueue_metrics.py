"""`metrics` of Kueue's Configuration: labels of queues that metrics get, and LocalQueues that have metrics.

The rules are those of kubernetes-sigs/kueue@ff69552 pkg/config/validation.go.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator, model_validator

from shared.contracts.kube.kinds import KUEUE_GROUP
from shared.settings.sections import LabelSelector, Section

UNTRACKED: Final = f"{KUEUE_GROUP}/_UNTRACKED_VALUE_"
"""What stands in a metric for a value that is not in `trackedValues`; Kueue's."""

LABELS_MAX: Final = 20
"""Custom labels of one document."""

LABELS_OF_A_KIND_MAX: Final = {"Cohort": 6, "LocalQueue": 6, "ClusterQueue": 6, "Workload": 2}
TRACKED_MAX: Final = 16
TRACKED_OF_WORKLOADS_MAX: Final = 12
"""Kueue's limits of labels by kind, and of the values that one label tracks: they bound its time series."""

_KEY: Final = (
    r"^(([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
SourceKind = Literal["Cohort", "LocalQueue", "ClusterQueue", "Workload"]


class CustomLabel(Section):
    """A label or annotation of an object that its metrics show as `custom_<name>`."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z][a-zA-Z0-9_]*$")]
    source_label_key: Annotated[str, Field(pattern=_KEY)] | None = None
    """None, and no annotation: the label that is called `name`."""

    source_annotation_key: Annotated[str, Field(pattern=_KEY)] | None = None
    source_kind: SourceKind = "ClusterQueue"
    tracked_values: tuple[str, ...] = ()
    """Empty: every value is shown."""

    @model_validator(mode="after")
    def _is_unambiguous(self) -> "CustomLabel":
        if self.source_label_key and self.source_annotation_key:
            raise ValueError("sourceLabelKey and sourceAnnotationKey are mutually exclusive")
        values = self.tracked_values
        most = TRACKED_OF_WORKLOADS_MAX if self.source_kind == "Workload" else TRACKED_MAX
        if len(values) > most:
            raise ValueError(f"trackedValues: at most {most}, got {len(values)}")
        if len(set(values)) < len(values):
            raise ValueError("trackedValues: must not contain duplicates")
        if self.source_kind == "Workload" and not values:
            raise ValueError("trackedValues: must not be empty when sourceKind is Workload")
        return self

    def value(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
        """The value for an object with these labels and annotations; empty if it has none."""
        if self.source_annotation_key:
            found = annotations.get(self.source_annotation_key, "")
        else:
            found = labels.get(self.source_label_key or self.name, "")
        return found if not self.tracked_values or found in self.tracked_values else UNTRACKED


class LocalQueueMetrics(Section):
    """Which LocalQueues have metrics."""

    enable: bool = True
    local_queue_selector: LabelSelector | None = None
    """None: all of them."""

    def shows(self, labels: Mapping[str, str]) -> bool:
        """Whether a LocalQueue with these labels has metrics."""
        selector = self.local_queue_selector
        return self.enable and (selector is None or selector.selects(labels))


class Metrics(Section):
    """The section."""

    bind_address: str | None = None
    enable_cluster_queue_resources: bool | None = None
    custom_labels: Annotated[tuple[CustomLabel, ...], Field(max_length=LABELS_MAX)] = ()
    local_queue_metrics: LocalQueueMetrics = LocalQueueMetrics()

    @field_validator("custom_labels")
    @classmethod
    def _labels_are_few_and_distinct(
        cls, value: tuple[CustomLabel, ...]
    ) -> tuple[CustomLabel, ...]:
        names = Counter(one.name for one in value)
        if doubled := sorted(name for name, count in names.items() if count > 1):
            raise ValueError(f"two labels of the name {', '.join(doubled)}")
        for kind, count in Counter(one.source_kind for one in value).items():
            if count > LABELS_OF_A_KIND_MAX[kind]:
                most = LABELS_OF_A_KIND_MAX[kind]
                raise ValueError(f"at most {most} labels of sourceKind {kind}, got {count}")
        return value

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each part that has no effect, or another one than with Kueue."""
        if self.bind_address is not None:
            yield (
                "metrics.bindAddress is not used: each service has settings of its own, see "
                "docs/reference/settings.md"
            )
        if names := [one.name for one in self.custom_labels if one.source_kind == "Workload"]:
            yield (
                f"metrics.customLabels: {', '.join(names)} is not used: metrics have labels of queues and "
                "cohorts, not of Workloads"
            )
        if self.enable_cluster_queue_resources is False:
            yield "metrics.enableClusterQueueResources: false has no effect: they are always published"
