"""What must always be true of the whole state. Called after every step in tests and simulation."""

from services.quota.engine.engine import QuotaEngine
from services.quota.engine.model.state import Place, Shard
from services.quota.engine.model.tree import Node, Tree

__all__ = ["InvariantError", "check"]


class InvariantError(AssertionError):
    """The state contradicts itself; the message says where."""


def check(engine: QuotaEngine) -> None:
    """Raise `InvariantError` unless everything holds."""
    for shard in engine.shards():
        if shard.stale:
            continue
        for tree in shard.trees.values():
            _usage_is_the_sum_of_holders(shard, tree)
            _borrowers_are_listed(shard, tree)
        _places(shard)
        _classes(shard)
        _claims(shard)


def _usage_is_the_sum_of_holders(shard: Shard, tree: Tree) -> None:
    def expected(node: Node, index: int) -> int:
        if node.queue is not None:
            fr = tree.frs[index]
            return sum(w.usage.get(fr, 0) for w in node.queue.holders.values())
        return sum(
            max(0, expected(child, index) - child.local[index])
            for child in (*node.cohorts, *node.queues)
        )

    for node in tree.nodes:
        for index, fr in enumerate(tree.frs):
            used = node.usage[index]
            if used < 0:
                raise InvariantError(f"{shard.name}: {node.name} uses {used} of {fr}")
            if used != (right := expected(node, index)):
                text = f"{shard.name}: {node.name} uses {used} of {fr}, its holders {right}"
                raise InvariantError(text)


def _borrowers_are_listed(shard: Shard, tree: Tree) -> None:
    for index, fr in enumerate(tree.frs):
        expected = {n.name for n in tree.queues if n.usage[index] > n.nominal[index]}
        if expected != (listed := {n.name for n in tree.above[index]}):
            text = f"{shard.name}: {sorted(expected)} use more than they own of {fr}"
            raise InvariantError(f"{text}, listed are {sorted(listed)}")


def _classes(shard: Shard) -> None:
    for cq in shard.queues.values():
        for cls in cq.classes.values():
            if cls.count != (waiting := len(cls.members())):
                text = f"{shard.name}: a class of {cq.name} counts {cls.count}, {waiting} wait"
                raise InvariantError(text)


def _places(shard: Shard) -> None:
    for key, w in shard.workloads.items():
        holding = w.place is Place.HOLDING
        waits = w.queue is not None and key in w.queue.waiting
        if holding and waits:
            raise InvariantError(f"{shard.name}: {key} holds and waits")
        if w.place in {Place.QUEUED, Place.PARKED, Place.CLAIMING} and not waits:
            raise InvariantError(f"{shard.name}: {key} is {w.place.name} but waits nowhere")
        counted = any(key in cq.holders for cq in shard.queues.values())
        counted = counted or any(key in o for o in shard.orphans.values())
        if holding != counted:
            raise InvariantError(f"{shard.name}: {key} holds: {holding}, is counted: {counted}")


def _claims(shard: Shard) -> None:
    for key, w in shard.claims.items():
        if w.place is not Place.CLAIMING or w.claim is None or w.queue is None:
            raise InvariantError(f"{shard.name}: {key} claims nothing")
        for victim in w.claim.victims.values():
            if victim.place is not Place.HOLDING or not victim.evicted:
                raise InvariantError(f"{shard.name}: {victim.key} is no victim of {key}")
