"""What mutation must know of the namespace in which an object is created."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shared.integrations import SHIPPED, Integrations


def _no_priority_class(_queue: str) -> str:
    return ""


def _no_multikueue(_queue: str) -> bool:
    return False


def _not_admitted(_uid: str) -> bool:
    return False


def _none_admitted(_uid: str, _kind: str) -> bool:
    return False


def _no_kind_admitted(_kind: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceContext:
    """Policies and defaults of one namespace. The rules are Kueue's, from its job webhooks."""

    managed: bool = True
    """False: `managedJobsNamespaceSelector` excludes the namespace; its jobs are left alone."""

    default_queue: str = ""
    """LocalQueue of jobs that name none; empty: there is none."""

    manage_without_queue: bool = False
    """True: jobs without a LocalQueue are held too, until somebody gives them one."""

    default_priority_class: Callable[[str], str] = _no_priority_class
    """LocalQueue to the WorkloadPriorityClass of jobs that name none; empty: there is none."""

    uses_multikueue: Callable[[str], bool] = _no_multikueue
    """LocalQueue to whether its jobs run on other clusters."""

    is_admitted: Callable[[str], bool] = _not_admitted
    """Uid to whether it is that of an admitted object of the namespace."""

    is_admitted_as: Callable[[str, str], bool] = _none_admitted
    """Uid and kind to whether an object of the namespace with that uid and kind is admitted."""

    has_admitted: Callable[[str], bool] = _no_kind_admitted
    """Kind to whether an object of it is admitted in the namespace."""

    knows_decisions: bool = False
    """False: the decisions are not read yet, so nobody's start is refused for want of admission."""

    patchers: frozenset[str] = frozenset()
    """Names of the users that start what is admitted; none: nobody's start is refused."""

    request_editors: frozenset[str] = frozenset()
    """Names of the users and groups that may change what a waiting PipelineRun asks for."""

    integrations: Integrations = SHIPPED
    """The kinds of job that can be held."""


DEFAULT_CONTEXT: Final = NamespaceContext()


def default_context(_namespace: str) -> NamespaceContext:
    """Return the same context for every namespace: for callers without a cluster."""
    return DEFAULT_CONTEXT
