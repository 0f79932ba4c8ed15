"""Facts about clusters whose watchers have not listed everything yet."""

from services.quota.engine.facts import Fact
from shared.contracts.refs import ObjectRef


class UnlistedFacts:
    """Keeps facts until their cluster is listed: a partial list is no base for decisions.

    Of an object of the configuration it keeps the last fact only: a spoke may write again and again, and
    never say that it has listed everything.
    """

    def __init__(self) -> None:
        self._facts: dict[str, dict[object, Fact]] = {}
        """By cluster and object, or by something that is equal to nothing."""

    def add(self, fact: Fact, about: ObjectRef | None = None) -> None:
        """Keep a fact. `about`: the object that it says everything of."""
        kept = self._facts.setdefault(fact.cluster, {})
        key = object() if about is None else about
        kept.pop(key, None)
        kept[key] = fact

    def pop(self, cluster: str) -> list[Fact]:
        """The facts of a cluster in their order; they are not kept any more."""
        return [*self._facts.pop(cluster, {}).values()]
