"""The place between a request and the store where others may change or refuse it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from services.simulator.cluster.kinds.registry import Kind, Obj

__all__ = ["AdmissionChain", "AdmissionPlugin", "AdmissionRequest", "Operation"]

Operation = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(slots=True, kw_only=True)
class AdmissionRequest:
    """One write on its way. Plugins replace `obj`, never change it in place."""

    operation: Operation
    kind: Kind
    version: str
    """Of `obj` and `old`: the version that the client spoke."""

    namespace: str
    name: str
    """Empty while a generated name is not drawn yet."""

    obj: Obj | None
    """``None`` for a deletion."""

    old: Obj | None = None
    subresource: str = ""
    dry_run: bool = False


class AdmissionPlugin(Protocol):
    """One admission controller. Refuses by raising `ApiError`."""

    @property
    def name(self) -> str:
        """Mutation goes in the alphabetical order of these names."""

    async def mutate(self, request: AdmissionRequest) -> Obj | None:
        """Return the object as it shall be (the same one, if nothing is to change)."""

    async def validate(self, request: AdmissionRequest) -> None:
        """Raise if the object, as all mutations left it, must not be stored."""


class AdmissionChain:
    """All that is asked: plugins of this process, and whatever `dynamic` finds configured."""

    def __init__(
        self,
        plugins: Sequence[AdmissionPlugin] = (),
        dynamic: Callable[[AdmissionRequest], Sequence[AdmissionPlugin]] | None = None,
    ) -> None:
        self.plugins = list(plugins)
        self.dynamic = dynamic

    def _asked(self, request: AdmissionRequest) -> list[AdmissionPlugin]:
        found = [*self.plugins, *(self.dynamic(request) if self.dynamic is not None else ())]
        return sorted(found, key=lambda plugin: plugin.name)

    async def mutate(self, request: AdmissionRequest) -> Obj | None:
        """Ask everybody in turn; return what came out."""
        for plugin in self._asked(request):
            request.obj = await plugin.mutate(request)
        return request.obj

    async def validate(self, request: AdmissionRequest) -> None:
        """Ask everybody whether the outcome may be stored."""
        for plugin in self._asked(request):
            await plugin.validate(request)
