"""The section `multiKueue.clusterProfile` of Kueue's Configuration: who gives credentials for clusters."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from shared.settings.sections import Section

Text = Annotated[str, Field(min_length=1)]


class ExecVariable(Section):
    """A variable in the environment of a plugin."""

    name: Text
    value: str = ""


class ExecConfig(Section):
    """A credential plugin, as in the users of a kubeconfig."""

    api_version: Text
    command: Text
    interactive_mode: Literal["Never", "IfAvailable", "Always"]
    """Services have no terminal: it is `Never` for them."""

    args: tuple[str, ...] | None = None
    env: tuple[ExecVariable, ...] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False


class AccessProvider(Section):
    """A plugin, and the name by which ClusterProfiles ask for it."""

    name: Text
    exec_config: ExecConfig


class ClusterProfiles(Section):
    """How clusters are reached that a ClusterProfile describes."""

    access_providers: tuple[AccessProvider, ...] = ()
    credentials_providers: tuple[AccessProvider, ...] = ()
    """The older name of the same."""

    @model_validator(mode="after")
    def _one_name_is_used(self) -> "ClusterProfiles":
        if self.access_providers and self.credentials_providers:
            raise ValueError("credentialsProviders: must not be set beside accessProviders")
        return self

    @property
    def providers(self) -> tuple[AccessProvider, ...]:
        """By whatever name they are given."""
        return self.access_providers or self.credentials_providers
