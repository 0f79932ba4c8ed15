"""Everything an operator may set for the provisioner, with its default."""

from typing import Annotated

from pydantic import Field

from shared.settings.base import ServiceSettings

__all__ = ["ProvisionerSettings"]


class ProvisionerSettings(ServiceSettings):
    """Read once, at start, from `SLUICE_…` environment variables."""

    host_config_namespace: str = "multi-platform-controller"
    host_config_name: str = "host-config"
    """The ConfigMap that says which platforms there are."""

    sweep_seconds: Annotated[float, Field(gt=0)] = 60.0
    """How often machines and records are compared."""

    provider_call_seconds: Annotated[float, Field(gt=0)] = 30.0
    """How long one call to a provider may take before it counts as failed."""

    launch_retry_seconds: Annotated[float, Field(gt=0)] = 20.0
    """Between two tries to order the same machine."""

    poll_retry_seconds: Annotated[float, Field(gt=0)] = 10.0
    """Until a provider that could not be asked is asked again; termination is checked this often."""

    forget_seconds: Annotated[float, Field(gt=0)] = 600.0
    """How long the end of a TaskRun stays in the view after its TaskRun is gone."""

    fake_boot_seconds: Annotated[float, Field(ge=0)] = 2.0
    """Machines of `type: fake` have an address after about this long."""

    fake_broken_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of machines of `type: fake` that never come up."""

    fake_seed: int = 0
