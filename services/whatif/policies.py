"""How workloads are counted and admitted in a what-if: by Kueue's Configuration, if one is given."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from services.quota.engine import Policy
from shared.runtime.command import CommandError

if TYPE_CHECKING:
    from services.classifier.projection.policy import Policy as ClassifierPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The policies of the services that take part; by default those of a Configuration that says nothing."""

    engine: Policy = field(default_factory=Policy)
    classifier: "ClassifierPolicy | None" = None
    """None: the default."""


def policies_of(path: Path | None) -> Policies:
    """The policies of the Configuration at `path`; the defaults without one.

    Raises `CommandError` if it cannot be used.
    """
    if path is None:
        return Policies()  # Without the models of the Configuration, which take a while to import.
    from services.classifier.projection.policy import Policy as ClassifierPolicy  # noqa: PLC0415
    from services.quota.policy import policy_of  # noqa: PLC0415
    from shared.settings.configuration import ConfigurationError, read_configuration  # noqa: PLC0415

    try:
        configuration = read_configuration(path)
    except ConfigurationError as error:
        raise CommandError(
            "--configuration", str(error), hint="it is the file that quota is given"
        ) from error
    return Policies(engine=policy_of(configuration), classifier=ClassifierPolicy.of(configuration))
