"""The machine types of this repository (`dynamic.<platform>.type`), as data.

This table is their one home. It names the module of a type's client, and does not import it: `sluice`
needs the rules only, and a cloud's library takes seconds to load.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from services.provisioner.config.parameter_rules import ParameterRules

GROUP: Final = "sluicegate.providers"
"""Entry points of this group add types of other packages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderType:
    """One type."""

    kind: str
    """`module:name` of its `ProviderKind`, as in an entry point."""

    rules: ParameterRules
    architecture_in_secret: bool = False
    """Whether the name of the SSH secret must contain the platform's architecture."""


AWS: Final = ParameterRules(
    required=("region", "ami", "instance-type", "aws-secret"),
    integers={"disk": 1, "iops": 1, "throughput": 1},
    flags=("strict-public-address", "spot"),
    complete_groups=(("tenancy", "host-resource-group-arn", "license-configuration-arn"),),
)

IBM_VPC: Final = ParameterRules(
    required=("vpc", "key", "subnet", "image-id", "region", "url", "profile", "secret"),
    integers={"disk": 1},
    flags=("private-ip",),
)

IBM_POWER: Final = ParameterRules(
    required=("crn", "network", "system", "image", "key", "url", "secret"),
    integers={"disk": 100},
    decimals={"cores": 0.25, "memory": 2},
)

PROVIDER_TYPES: Final[Mapping[str, ProviderType]] = {
    "aws": ProviderType(kind="services.provisioner.providers.aws:KIND", rules=AWS),
    "ibmz": ProviderType(
        kind="services.provisioner.providers.ibm_vpc:KIND",
        rules=IBM_VPC,
        architecture_in_secret=True,
    ),
    "ibmp": ProviderType(
        kind="services.provisioner.providers.ibm_power:KIND",
        rules=IBM_POWER,
        architecture_in_secret=True,
    ),
}

FAKE: Final = "fake"
"""The type whose machines exist in memory only. It has no client to load and no rules."""

KNOWN_TYPES: Final = frozenset({*PROVIDER_TYPES, FAKE})
RULES: Final[Mapping[str, ParameterRules]] = {
    name: type_.rules for name, type_ in PROVIDER_TYPES.items()
}
"""Rules for the types' own keys, by type."""
