"""Somebody who may something."""

from collections.abc import Iterable

from services.console.access.users import Attributes, User
from services.console.refusals import Refusal

__all__ = ["People"]


class People:
    """Each may do what stands behind the name: `verb resource[/subresource] [in namespace]`.

    Their tokens are their names.
    """

    def __init__(self, **rights: Iterable[str]) -> None:
        self.rights = {name: frozenset(each) for name, each in rights.items()}
        self.answers = True
        """Whether the cluster does."""

    async def user(self, token: str | None) -> User:
        if not self.answers:
            raise Refusal(503, "the cluster does not answer")
        if token not in self.rights:
            raise Refusal(401, "nobody has this token")
        return User(name=token)

    async def may(self, user: User, attributes: Attributes) -> bool:
        what = f"{attributes.verb} {attributes.resource}"
        if attributes.subresource:
            what += f"/{attributes.subresource}"
        wide = what in self.rights[user.name]
        return wide or f"{what} in {attributes.namespace}" in self.rights[user.name]
