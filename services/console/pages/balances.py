"""Where the quota of all ClusterQueues and cohorts is: their own, borrowed, lent, reserved and in use.

The figures are those of quota's engine, from the replica that also explains why a workload waits.
"""

from time import monotonic
from typing import Final

from services.console.pages.documents import QuotaNode, QuotaPlace, QuotaTree
from services.console.view import View
from services.quota.engine.views.balances import NodeBalance
from shared.contracts.kube.quantities import format_amount

FRESH_SECONDS: Final = 2.0
"""How old the figures may be. All pages share them."""


class Balances:
    """The figures of one process, made when somebody asks."""

    def __init__(self, view: View) -> None:
        self.fresh_seconds = FRESH_SECONDS
        self._view = view
        self._made_at = 0.0
        self._text = ""

    def forget(self) -> None:
        """Drop the figures: nobody asks any more."""
        self._text = ""

    def text(self) -> str:
        """The document `QuotaTree` as JSON: fifty pages that ask do not make it fifty times."""
        now = monotonic()
        if not self._text or now - self._made_at >= self.fresh_seconds:
            self._text = _tree(self._view).model_dump_json(by_alias=True, exclude_none=True)
            self._made_at = now
        return self._text


def _tree(view: View) -> QuotaTree:
    return QuotaTree(
        items=[
            _node(cluster, node)
            for cluster, nodes in sorted(view.replica.balances().items())
            for node in nodes
        ]
    )


def _node(cluster: str, node: NodeBalance) -> QuotaNode:
    return QuotaNode(
        cluster=cluster,
        kind="ClusterQueue" if node.is_queue else "Cohort",
        name=node.name,
        parent=node.parent or None,
        places=[
            QuotaPlace(
                flavor=flavor,
                resource=resource,
                nominal=format_amount(resource, each.nominal),
                reserved=format_amount(resource, each.reserved),
                used=format_amount(resource, each.used),
                borrowed=format_amount(resource, each.borrowed),
                lent=format_amount(resource, each.lent),
            )
            for (flavor, resource), each in node.balances.items()
        ],
    )
