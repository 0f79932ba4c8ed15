"""Mutants of what runs on spokes, on machines, and together on nodes."""

from typing import Any, Final

from services.provisioner.store import Store
from services.simulator.mutants.deciding import constant, without
from services.simulator.mutants.plant import Mutant
from shared.contracts.subjects import Stream


async def _true(*_args: Any, **_options: Any) -> bool:
    return True


async def _nothing(*_args: Any, **_options: Any) -> None:
    return None


def _by_the_view(self: Store, _known: Any, state: Any, sequence: int) -> None:
    self.apply_platform_state(state, sequence)


def _sociable(original: Any) -> Any:
    def affinity(run: Any, resource: str, given: Any) -> Any:
        made = original(run, "pipelineruns", given)
        if resource == "isolate-pipelinerun":
            made["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = []
        return made

    return affinity


MUTANTS: Final = (
    Mutant(
        name="a copy starts without its order",
        adr=40,
        where="services.patcher.multikueue.copies:CopyReconciler.may_start",
        make=lambda _original: _true,
        scenarios=("spokes",),
    ),
    Mutant(
        name="a copy runs on without a lease",
        adr=40,
        where="services.patcher.multikueue.copies:CopyReconciler.stop",
        make=lambda _original: _nothing,
        scenarios=("spokes",),
    ),
    Mutant(
        name="a withdrawn copy counts as gone",
        adr=40,
        where="services.dispatcher.planning.plan:may_still_run",
        make=constant([]),
        scenarios=("spokes",),
    ),
    Mutant(
        name="a copy goes before its pods",
        adr=40,
        where="services.patcher.multikueue.copies:_only_our_finalizer_left",
        make=constant(True),
        scenarios=("spokes",),
    ),
    Mutant(
        name="the end of a withdrawn copy is not told",
        adr=40,
        is_rare=True,
        where="services.patcher.multikueue.copies:CopyReconciler._report_end",
        make=lambda _original: _nothing,
        scenarios=("spokes",),
    ),
    Mutant(
        name="records of platforms have no fence",
        adr=20,
        where="shared.bus.order.fences:Fences.headers",
        make=without(Stream.HOSTS),
        scenarios=("machines",),
    ),
    Mutant(
        name="a record that a log has lost is fenced by its view",
        adr=85,
        where="services.provisioner.store:Store.fence_record",
        make=lambda _original: _by_the_view,
        scenarios=("machines",),
    ),
    Mutant(
        name="keys of machines are not encrypted",
        adr=20,
        where="services.provisioner.hosts.access:seal",
        make=lambda _original: lambda content, **_options: content.decode(),
        scenarios=("machines",),
    ),
    Mutant(
        name="an isolated run is not alone",
        adr=31,
        where="services.patcher.coscheduling.plan:_affinity",
        make=_sociable,
        scenarios=("coscheduling",),
    ),
    Mutant(
        name="placeholders and claims stay behind",
        adr=31,
        where="services.patcher.coscheduling.reconciler:CoschedulingReconciler.clean_up",
        make=lambda _original: _nothing,
        scenarios=("coscheduling",),
    ),
)
"""Spokes, machines, nodes."""
