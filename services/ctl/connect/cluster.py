"""What a command says when the API server does not do what it was asked."""

from shared.kube.port import KubeError, NotFoundError, UnavailableError
from shared.runtime.command import CommandError, Exit


def refused(title: str, error: KubeError) -> CommandError:
    """The error of a command about the object `title`, from that of the API server."""
    if isinstance(error, NotFoundError):
        return CommandError(title, "not found in the cluster", status=Exit.FAILED)
    if isinstance(error, UnavailableError):
        return CommandError(title, str(error), status=Exit.UNREACHABLE)
    return CommandError(title, f"refused: {error}", status=Exit.FAILED)
