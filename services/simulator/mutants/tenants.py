"""Mutants of what a tenant may write: the services must not believe it."""

from typing import Final

from services.simulator.mutants.deciding import constant
from services.simulator.mutants.plant import Mutant
from services.simulator.scenarios.tenants.jobs import run_beyond_counting
from services.simulator.scenarios.tenants.workloads import outlive
from shared.contracts.kube.quantities import NANO, format_quantity

TENANTS: Final = ("tenants",)


def _unbounded(resource: str, value: int) -> str:
    return format_quantity(value * (NANO // 1000 if resource == "cpu" else NANO))


def _no_most(_resource: str) -> int:
    return 10**60


UNBOUNDED_WRITING: Final = Mutant(
    name="a decision has amounts that nobody can read back",
    adr=35,
    where="services.quota.wire.outbound:format_amount",
    make=lambda _original: _unbounded,
    scenarios=TENANTS,
    besides=Mutant(
        name="a decision has amounts without bounds",
        adr=35,
        where="services.quota.wire.outbound:amount_max",
        make=lambda _original: _no_most,
        scenarios=TENANTS,
    ),
)

MUTANTS: Final = (
    Mutant(
        name="what a workload asks has no bounds",
        adr=35,
        where="services.quota.wire.workloads:amount_max",
        make=lambda _original: _no_most,
        often=run_beyond_counting,
        scenarios=TENANTS,
        besides=UNBOUNDED_WRITING,
    ),
    Mutant(
        name="what runs without admission is only counted",
        adr=32,
        where="services.quota.wire.outbound:bypass_cause",
        make=constant(None),
        scenarios=TENANTS,
    ),
    Mutant(
        name="a tenant may change what a waiting run asks for",
        adr=35,
        where="services.simulator.scenarios.system:check_fixed",
        make=constant(None),
        scenarios=TENANTS,
    ),
    Mutant(
        name="any controller makes jobs",
        adr=95,
        where="shared.integrations:Integration.makes",
        make=constant(True),
        scenarios=TENANTS,
    ),
    Mutant(
        name="a Workload that outlives its job is its user's own",
        adr=103,
        where="services.classifier.projection.projector:was_of_a_job",
        make=constant(False),
        often=outlive,
        scenarios=TENANTS,
    ),
    Mutant(
        name="a tenant may take away the label by which a pod is seen",
        adr=111,
        where="services.classifier.webhook.updates:_check_label",
        make=constant(None),
        scenarios=TENANTS,
    ),
    Mutant(
        name="a job that leaves its controller is forgotten",
        adr=117,
        where="services.classifier.projection.owners.origins:Origins.left",
        make=constant(""),
        scenarios=TENANTS,
    ),
)
"""In the order of the ADRs."""
