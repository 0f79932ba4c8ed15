"""Every safety mechanism that an ADR speaks of, and how it is taken out."""

from typing import Final

from services.simulator.mutants import believing, deciding, executing, observing, placing, tenants
from services.simulator.mutants.plant import Mutant

MUTANTS: Final[tuple[Mutant, ...]] = (
    *deciding.MUTANTS,
    *observing.MUTANTS,
    *executing.MUTANTS,
    *placing.MUTANTS,
    *believing.MUTANTS,
    *tenants.MUTANTS,
)
"""All of them; names are unique."""
