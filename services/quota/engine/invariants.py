"""Invariants of the engine's state, checked by each audit, and after every step in tests."""

from services.quota.engine.engine import QuotaEngine
from services.quota.engine.model.state import Node, Phase, Shard, Tree


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
            fr = tree.flavor_resources[index]
            return sum(w.usage.get(fr, 0) for w in node.queue.holders.values())
        return sum(
            max(0, expected(child, index) - child.local_quota[index])
            for child in (*node.cohorts, *node.queues)
        )

    for node in tree.nodes:
        for index, fr in enumerate(tree.flavor_resources):
            used = node.usage[index]
            if used < 0:
                raise InvariantError(f"{shard.name}: {node.name} uses {used} of {fr}")
            if used != (right := expected(node, index)):
                text = f"{shard.name}: {node.name} uses {used} of {fr}, its holders {right}"
                raise InvariantError(text)


def _borrowers_are_listed(shard: Shard, tree: Tree) -> None:
    for index, fr in enumerate(tree.flavor_resources):
        expected = {n.name for n in tree.queues if n.usage[index] > n.nominal[index]}
        if expected != (listed := {n.name for n in tree.borrowers[index]}):
            text = f"{shard.name}: {sorted(expected)} use more than they own of {fr}"
            raise InvariantError(f"{text}, listed are {sorted(listed)}")


def _classes(shard: Shard) -> None:
    for cq in shard.queues.values():
        for waiting_class in cq.classes.values():
            if waiting_class.count != (waiting := len(waiting_class.members())):
                text = f"{shard.name}: a class of {cq.name} counts {waiting_class.count}, {waiting} wait"
                raise InvariantError(text)


def _places(shard: Shard) -> None:
    for key, w in shard.workloads.items():
        holding = w.phase is Phase.HOLDING
        waits = w.queue is not None and key in w.queue.waiting
        if holding and waits:
            raise InvariantError(f"{shard.name}: {key} holds and waits")
        if w.phase in {Phase.QUEUED, Phase.PARKED, Phase.CLAIMING} and not waits:
            raise InvariantError(f"{shard.name}: {key} is {w.phase.name} but waits nowhere")
        counted = any(key in cq.holders for cq in shard.queues.values())
        counted = counted or any(key in o for o in shard.orphaned_holders.values())
        if holding != counted:
            raise InvariantError(f"{shard.name}: {key} holds: {holding}, is counted: {counted}")


def _claims(shard: Shard) -> None:
    for key, w in shard.claims.items():
        if w.phase is not Phase.CLAIMING or w.claim is None or w.queue is None:
            raise InvariantError(f"{shard.name}: {key} claims nothing")
        for victim in w.claim.victims.values():
            if victim.phase is not Phase.HOLDING or not victim.evicted:
                raise InvariantError(f"{shard.name}: {victim.key} is no victim of {key}")
