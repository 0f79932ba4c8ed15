"""Connects a command to a cluster, and says what to do where that does not work."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from services.ctl.connect.reader import state_of
from shared.kube.port import KubeError, NotFoundError, UnavailableError
from shared.runtime.command import CommandError, Exit, not_yaml, unreadable

if TYPE_CHECKING:
    from shared.kube.client import HttpKube

_LIST: Final = "give a kubeconfig of the cluster; of several files in KUBECONFIG name one"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChoice:
    """The options by which a user chooses a cluster."""

    kubeconfig: Path | None = None
    """None means that of the `sluice dev` in `directory`."""

    context: str | None = None
    """None means the current one of the kubeconfig."""

    directory: Path = Path(".sluice")

    def open(self) -> "HttpKube":
        """A client of the cluster, which connects at the first call. Raises `CommandError`."""
        kubeconfig, context = self.kubeconfig, self.context
        if kubeconfig is None:
            state = state_of(self.directory)
            if not state.get("kubeconfig"):
                raise CommandError(
                    "--kubeconfig", "is needed: this command writes to a cluster", hint=_LIST
                )
            kubeconfig, context = Path(state["kubeconfig"]), context or state.get("context")
        check_kubeconfig(kubeconfig, context)
        from shared.kube.client import HttpKube  # noqa: PLC0415

        return HttpKube.from_kubeconfig(str(kubeconfig), context)


def check_kubeconfig(path: Path, context: str | None) -> None:
    """Raise `CommandError` if the file is no kubeconfig, or has no such context."""
    title = f"--kubeconfig: {str(path)!r}"
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(title, unreadable(error), hint=_LIST) from error
    except (yaml.YAMLError, ValueError) as error:  # A date that does not exist is the latter.
        raise CommandError(title, not_yaml(error), hint=_LIST) from error
    if not isinstance(document, dict):
        raise CommandError(title, "is no kubeconfig: it has no fields", hint=_LIST)
    contexts, clusters = _named(document, "contexts"), _named(document, "clusters")
    there_are = f"there are {', '.join(sorted(contexts))}" if contexts else "it has none at all"
    if not (chosen := str(context or document.get("current-context") or "")):
        raise CommandError(
            title, "current-context: is not set", hint=f"choose one with --context: {there_are}"
        )
    if chosen not in contexts:
        field = "--context" if context else f"{title}: current-context"
        raise CommandError(
            f"{field}: {chosen!r}", "the kubeconfig has no such context", hint=f"{there_are}"
        )
    parts = contexts[chosen].get("context")
    cluster = parts.get("cluster") if isinstance(parts, dict) else None
    if str(cluster) not in clusters:
        raise CommandError(
            f"{title}: context {chosen}: cluster: {cluster!r}", "the file has no such cluster"
        )


def _named(document: Mapping[str, Any], field: str) -> dict[str, Any]:
    entries = document.get(field)
    listed = entries if isinstance(entries, list) else []
    return {str(each["name"]): each for each in listed if isinstance(each, dict) and "name" in each}


def refused(title: str, error: KubeError) -> CommandError:
    """The error of a command about the object `title`, from that of the API server."""
    if isinstance(error, NotFoundError):
        return CommandError(title, "not found in the cluster", status=Exit.FAILED)
    if isinstance(error, UnavailableError):
        return CommandError(
            title,
            f"the API server does not answer: {error}",
            hint="does it run? `kubectl get --raw /readyz` with the same kubeconfig asks it, too",
            status=Exit.UNREACHABLE,
        )
    return CommandError(title, f"refused: {error}", status=Exit.FAILED)
