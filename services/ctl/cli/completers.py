"""Shell completion of arguments and options. Imports nothing that is slow before it is asked."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final

import typer

app = typer.Typer(rich_markup_mode=None)


def one_of_these(*words: str) -> Callable[[str], list[str]]:
    """Complete one of these words."""

    def complete(incomplete: str) -> list[str]:
        return _beginning(words, incomplete)

    return complete


def complete_resource(incomplete: str) -> list[str]:
    """Complete a resource of `sluice get`."""
    from services.ctl.get.resources import RESOURCES  # noqa: PLC0415

    return _beginning((resource.name for resource in RESOURCES), incomplete)


def complete_name(context: typer.Context, incomplete: str) -> list[str]:
    """Complete names of the kind that is on the command line already."""
    given = context.params
    word = str(given.get("resource") or given.get("kind") or "")
    namespace = str(given.get("namespace") or "default")
    return _beginning((name for _, name, _ in _known(word, namespace, given)), incomplete)


def complete_workload(context: typer.Context, incomplete: str) -> list[str]:
    """Complete ``NAMESPACE/NAME``, with the job's name if there is one."""
    namespace, slash, _ = incomplete.partition("/")
    known = _known("workloads", namespace if slash else None, context.params)
    return _beginning((f"{where}/{job or name}" for where, name, job in known), incomplete)


def complete_namespace(context: typer.Context, incomplete: str) -> list[str]:
    """Complete namespaces that have queues."""
    known = _known("localqueues", None, context.params)
    return _beginning((where for where, _, _ in known), incomplete)


def complete_spoke(context: typer.Context, incomplete: str) -> list[str]:
    """Complete names of MultiKueueClusters."""
    return _beginning((name for _, name, _ in _known("spokes", None, context.params)), incomplete)


def complete_cluster(context: typer.Context, incomplete: str) -> list[str]:
    """Complete names of clusters that a watcher has listed."""
    from services.ctl.get.completion import clusters, where  # noqa: PLC0415

    url, directory = where(context.params)
    return _beginning(clusters(url=url, directory=directory), incomplete)


def complete_object(context: typer.Context, incomplete: str) -> list[str]:
    """Complete ``KIND/NAME`` of what can be taken away; of a LocalQueue ``KIND/NAMESPACE/NAME``."""
    kind, slash, _ = incomplete.partition("/")
    if not slash:
        return _beginning((f"{each}/" for each in _REMOVABLE), incomplete)
    known = _known(_REMOVABLE.get(kind, kind), None, context.params)
    names = (f"{where}/{name}" if where else name for where, name, _ in known)
    return _beginning((f"{kind}/{name}" for name in names), incomplete)


def complete_context(context: typer.Context, incomplete: str) -> list[str]:
    """Complete contexts of the kubeconfig that is on the command line, or of `KUBECONFIG`."""
    from services.ctl.get.completion import contexts  # noqa: PLC0415

    return _beginning(contexts(context.params.get("kubeconfig")), incomplete)


def complete_scenario(incomplete: str) -> list[str]:
    """Complete names of simulated worlds."""
    from services.simulator.scenarios import SCENARIOS  # noqa: PLC0415

    return _beginning(sorted(SCENARIOS), incomplete)


_REMOVABLE: Final = {
    "ClusterQueue": "clusterqueues",
    "LocalQueue": "localqueues",
    "Cohort": "cohorts",
}
"""Kinds that `--remove` is mostly used for, as `sluice get` calls them."""


def _known(word: str, namespace: str | None, given: dict[str, Any]) -> list[tuple[str, str, str]]:
    from services.ctl.get.completion import names, where  # noqa: PLC0415

    url, directory = where(given)
    return names(word, namespace, url=url, directory=directory)


def _beginning(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]


@app.command()
def completion(
    shell: Annotated[
        str,
        typer.Argument(
            autocompletion=one_of_these("bash", "zsh", "fish"), help="bash, zsh or fish."
        ),
    ],
) -> None:
    """Print a completion script, for example for `source <(sluice completion bash)`."""
    from services.ctl.get.completion import script  # noqa: PLC0415

    print(script(shell))
