"""Builds the quota trees from queues and cohorts, and says why a queue is inactive."""

from collections.abc import Mapping
from typing import Final

from services.quota.engine.facts import WEIGHT_ONE, Quota, ResourceGroup
from services.quota.engine.model.amounts import unlimited_from
from services.quota.engine.model.shapes import FlavorResource, Grant
from services.quota.engine.model.state import ClusterQueue, Node, Phase, Shard, Tree, Workload
from services.quota.engine.model.tree import add_usage, build_tree, remove_usage
from services.quota.engine.reasons import QUEUE_STOPPED
from services.quota.engine.types import CheckKind, CheckRule

NOT_ADMITTING: Final = "Can't admit new workloads: "


def tree_of(cq: ClusterQueue) -> Tree:
    """The tree that the queue is part of."""
    return cq.node.tree


def rebuild_trees(shard: Shard) -> None:
    """Rebuild all trees, count all holders in them, and wake the trees that changed."""
    before = shard.trees
    cohorts, cyclic = _cohort_nodes(shard)
    roots: list[Node] = []
    for name, node in cohorts.items():
        parent = _parent_of(shard, name)
        if name in cyclic:
            continue
        if parent is None:
            roots.append(node)
        else:
            cohorts[parent].cohorts.append(node)
    for name in sorted(shard.queues):
        cq = shard.queues[name]
        cq.node = Node(
            name,
            queue=cq,
            quotas=_quotas(cq.fact.groups),
            weight=cq.fact.weight / WEIGHT_ONE,
        )
        cohort = cq.fact.cohort
        if cohort is None or cohort in cyclic:
            roots.append(cq.node)
        else:
            cohorts[cohort].queues.append(cq.node)
    held = _held_by_root(roots)
    shard.trees = {}
    for root in roots:
        tree = build_tree(root, held[root])
        if (old := before.get(tree.key)) is not None:
            tree.cycle_number, tree.needs_wake = old.cycle_number, old.needs_wake
        shard.trees[tree.key] = tree
    for cq in shard.queues.values():
        cq.plans.clear()
        was, cq.inactive = cq.inactive, _inactive_reason(shard, cq, cyclic)
        if (was is None) != (cq.inactive is None):
            _forget_reasons(shard, cq)
        for w in cq.holders.values():
            attach_holder(cq, w)
    for w in shard.claims.values():
        if w.claim is not None and w.queue is not None:
            _renumber_claim(w)
    shard.stale = False
    _wake(shard)


def _forget_reasons(shard: Shard, cq: ClusterQueue) -> None:
    """Have the reasons of those who wait published anew: the queue became active or inactive."""
    for w in cq.waiting.values():
        w.published_reason = ""
        shard.unpublished[w.key] = w


def _wake(shard: Shard) -> None:
    woken: dict[str, Tree] = {}
    for name in shard.queues_to_wake:
        if (cq := shard.queues.get(name)) is not None:
            woken[tree_of(cq).key] = tree_of(cq)
    shard.queues_to_wake.clear()
    for key, tree in woken.items():
        for node in tree.queues:
            assert node.queue is not None, node.name
            node.queue.generation += 1
        tree.needs_wake = True
        shard.dirty_trees[key] = None


def _renumber_claim(w: Workload) -> None:
    claim, cq = w.claim, w.queue
    assert claim is not None, w.key
    assert cq is not None, w.key
    tree, old = cq.node.tree, claim.grant
    known = {fr: amount for fr, amount in old.usage.items() if fr in tree.index}
    claim.outdated = True
    claim.grant = Grant(old.assigned, old.usage, tree.index_usage(known))
    most = cq.node.potential_available
    if len(known) < len(old.usage) or any(n > most[i] for i, n in claim.grant.indexed_usage):
        claim.victims.clear()  # It fits no more, whoever ends: it is evaluated anew at once.


def attach_holder(cq: ClusterQueue, w: Workload) -> None:
    """Count what a holder of `cq` uses in its present tree."""
    w.holding_node = cq.node
    tree = cq.node.tree
    w.indexed_usage = tree.index_usage(w.usage)
    w.holding_hash = hash((w.key, w.indexed_usage))
    tree.holdings_hash ^= w.holding_hash
    add_usage(cq.node, w.indexed_usage)


def detach_holder(w: Workload) -> None:
    """The opposite of `attach`."""
    assert w.holding_node is not None, w.key
    w.holding_node.tree.holdings_hash ^= w.holding_hash
    remove_usage(w.holding_node, w.indexed_usage)


def _cohort_nodes(shard: Shard) -> tuple[dict[str, Node], frozenset[str]]:
    """A node for each cohort that exists or is named; and the names of those in a cycle."""
    names = set(shard.cohorts)
    names |= {c.parent for c in shard.cohorts.values() if c.parent is not None}
    names |= {cq.fact.cohort for cq in shard.queues.values() if cq.fact.cohort is not None}
    nodes = {}
    for name in sorted(names):
        fact = shard.cohorts.get(name)
        nodes[name] = Node(
            name,
            queue=None,
            quotas=_quotas(fact.groups if fact else ()),
            weight=(fact.weight if fact else WEIGHT_ONE) / WEIGHT_ONE,
        )
    cyclic = set()
    for name in nodes:
        seen = {name}
        at = _parent_of(shard, name)
        while at is not None and at not in seen:
            seen.add(at)
            at = _parent_of(shard, at)
        if at is not None:
            cyclic.add(name)
    return nodes, frozenset(cyclic)


def _parent_of(shard: Shard, cohort: str) -> str | None:
    fact = shard.cohorts.get(cohort)
    return fact.parent if fact else None


def _quotas(groups: tuple[ResourceGroup, ...]) -> Mapping[FlavorResource, Quota]:
    return {
        (flavor.name, resource): _bounded(quota)
        for group in groups
        for flavor in group.flavors
        for resource, quota in flavor.quotas.items()
    }


def _bounded(quota: Quota) -> Quota:
    """The quota without negative values, and with `UNLIMITED` for huge ones."""
    borrow, lend = quota.borrowing_limit, quota.lending_limit
    return Quota(
        nominal=unlimited_from(max(0, quota.nominal)),
        borrowing_limit=None if borrow is None else unlimited_from(max(0, borrow)),
        lending_limit=None if lend is None else unlimited_from(max(0, lend)),
    )


def _held_by_root(roots: list[Node]) -> dict[Node, list[FlavorResource]]:
    """What is held below each root; it counts even if no node owns it any more."""
    held: dict[Node, list[FlavorResource]] = {}
    for root in roots:
        found: dict[FlavorResource, None] = {}
        stack = [root]
        while stack:
            node = stack.pop()
            stack += [*node.cohorts, *node.queues]
            if node.queue is not None:
                for w in node.queue.holders.values():
                    assert w.phase is Phase.HOLDING, w.key
                    found.update(dict.fromkeys(w.usage))
        held[root] = list(found)
    return held


def _inactive_reason(
    shard: Shard, cq: ClusterQueue, cyclic: frozenset[str] = frozenset()
) -> tuple[str, str] | None:
    """(reason of the first problem, message with all of them); None: the queue is active."""
    fact = cq.fact
    if fact.inactive is not None:
        return fact.inactive
    problems: list[tuple[str, str]] = []
    if fact.stop != "None":
        problems.append((QUEUE_STOPPED, "is stopped"))
    names = dict.fromkeys(f.name for group in fact.groups for f in group.flavors)
    if missing := [name for name in names if name not in shard.flavors]:
        text = f"references missing ResourceFlavor(s): {','.join(missing)}"
        problems.append(("FlavorNotFound", text))
    checks = [rule.name for rule in fact.checks]
    if missing := [name for name in checks if name not in shard.checks]:
        text = f"references missing AdmissionCheck(s): {','.join(missing)}"
        problems.append(("AdmissionCheckNotFound", text))
    if inactive := [n for n in checks if n in shard.checks and not shard.checks[n].active]:
        text = f"references inactive AdmissionCheck(s): {','.join(inactive)}"
        problems.append(("AdmissionCheckInactive", text))
    problems += _multikueue_problems(shard, cq)
    for name in names:
        # Kueue's reason and text. A pod that asks for a topology must not be placed without it.
        flavor = shard.flavors.get(name)
        if flavor is not None and flavor.topology is not None:
            text = f'there is no Topology "{flavor.topology}" for TAS flavor "{name}"'
            problems.append(("TopologyNotFound", f"{text} (placement by topology is not offered)"))
    if fact.cohort is not None and fact.cohort in cyclic:
        problems.append(("Unknown", f"cohort {fact.cohort} is part of a cycle"))
    if not problems:
        return None
    return problems[0][0], f"{NOT_ADMITTING}{', '.join(text for _, text in problems)}."


def _multikueue_problems(shard: Shard, cq: ClusterQueue) -> list[tuple[str, str]]:
    """Misuse of MultiKueue checks: one check for all flavors, and alone. Kueue's reasons and texts."""

    def rules_of(kind: CheckKind) -> list[CheckRule]:
        rules = [rule for rule in cq.fact.checks if rule.name in shard.checks]
        found = [rule for rule in rules if shard.checks[rule.name].kind == kind]
        return sorted(found, key=lambda rule: rule.name)

    problems: list[tuple[str, str]] = []
    multikueue = rules_of("MultiKueue")
    names = ",".join(rule.name for rule in multikueue)
    if len(multikueue) > 1:
        text = "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue"
        problems.append(("MultipleMultiKueueAdmissionChecks", f"{text}, found: {names}"))
    if some := ",".join(rule.name for rule in multikueue if rule.on_flavors):
        text = f"Cannot specify MultiKueue AdmissionCheck per flavor, found: {some}"
        problems.append(("MultiKueueAdmissionCheckAppliedPerFlavor", text))
    if names and (others := ",".join(rule.name for rule in rules_of("ProvisioningRequest"))):
        text = "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together"
        problems.append(("MultiKueueWithProvisioningRequest", f"{text}, found: {names}, {others}"))
    return problems
