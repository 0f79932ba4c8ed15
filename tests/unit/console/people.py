"""Somebody who may something."""

from collections.abc import Iterable

from services.console.access.reviews import ResourceAttributes, User
from services.console.status_error import ConsoleRule, StatusError

__all__ = ["People"]


class People:
    """Each may do what stands behind the name: `verb resource[/subresource] [in namespace]`.

    Their tokens are their names.
    """

    def __init__(self, **authorizer: Iterable[str]) -> None:
        self.authorizer = {name: frozenset(each) for name, each in authorizer.items()}
        self.answers = True
        """Whether the cluster does."""

    async def authenticate(self, token: str | None) -> User:
        if not self.answers:
            raise StatusError(ConsoleRule.NO_ANSWER)
        if token not in self.authorizer:
            raise StatusError(ConsoleRule.UNKNOWN_TOKEN)
        return User(name=token)

    async def is_allowed(self, user: User, attributes: ResourceAttributes) -> bool:
        what = f"{attributes.verb} {attributes.resource}"
        if attributes.subresource:
            what += f"/{attributes.subresource}"
        wide = what in self.authorizer[user.name]
        return wide or f"{what} in {attributes.namespace}" in self.authorizer[user.name]
