"""Admission: plugins and webhooks may change or refuse a request before it is stored."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from services.simulator.cluster.kinds.registry import Kind, Obj

Operation = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(slots=True, kw_only=True)
class AdmissionRequest:
    """One write that is not stored yet. Plugins replace `obj`; they never change it in place."""

    operation: Operation
    kind: Kind
    version: str
    """API version of `obj` and `old`: the one that the client used."""

    namespace: str
    name: str
    """Empty until a generated name is drawn."""

    obj: Obj | None
    """``None`` for a deletion."""

    old: Obj | None = None
    subresource: str = ""
    dry_run: bool = False


class AdmissionPlugin(Protocol):
    """One admission controller. Refuses by raising `ApiError`."""

    @property
    def name(self) -> str:
        """Plugins mutate in the alphabetical order of their names."""

    async def mutate(self, request: AdmissionRequest) -> Obj | None:
        """Return the object to store: the same one if the plugin changes nothing."""

    async def validate(self, request: AdmissionRequest) -> None:
        """Raise `ApiError` if the object, after all mutations, must not be stored."""


class AdmissionChain:
    """All admission controllers: plugins of this process, and the webhooks that `dynamic` finds."""

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
        """Run all mutating plugins in order; return the resulting object."""
        for plugin in self._asked(request):
            request.obj = await plugin.mutate(request)
        return request.obj

    async def validate(self, request: AdmissionRequest) -> None:
        """Run all validating plugins. Raises `ApiError` for the first refusal."""
        for plugin in self._asked(request):
            await plugin.validate(request)
