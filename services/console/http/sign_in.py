"""Sign in with OpenID Connect: what the page is told of the provider, and what it may connect to.

The page itself goes through the authorization code flow with PKCE (RFC 7636), as a public client: the
console holds no secret and sees no password. The ID token that it gets is a bearer token as any other:
the cluster checks it (TokenReview), so its API server must be configured for the same provider.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

CALLBACK: Final = "/signed-in"
"""The address to which the provider sends the browser back. It must be registered there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """The provider. Without an issuer, users paste a token."""

    issuer: str = ""
    client_id: str = ""
    scopes: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    """Where its token endpoint is, besides the issuer's own host."""

    def options(self) -> dict[str, str]:
        """What the page needs to sign in; empty: nothing is offered."""
        if not self.issuer:
            return {}
        return {
            "issuer": self.issuer,
            "clientId": self.client_id,
            "scope": " ".join(self.scopes),
            "callback": CALLBACK,
        }

    def headers(self, common: Mapping[str, str]) -> dict[str, str]:
        """The security headers of every answer: scripts may also connect to the provider."""
        if not self.issuer:
            return dict(common)
        parts = urlsplit(self.issuer)
        origins = " ".join((f"{parts.scheme}://{parts.netloc}", *self.origins))
        policy = "Content-Security-Policy"
        wider = common[policy].replace("connect-src 'self'", f"connect-src 'self' {origins}")
        return {**common, policy: wider}
