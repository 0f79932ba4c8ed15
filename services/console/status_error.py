"""Errors as Kubernetes words them (`metav1.Status`), and the rules by which the console refuses."""

from typing import Any, Final

from services.console.metrics import REQUESTS
from shared.contracts.reasons import RefusalRule
from shared.telemetry.refusals import series_name

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


_AGAIN: Final = "Try again after the time that `Retry-After` says."
_SEND_ONE: Final = "Send a token of this cluster, for instance of `kubectl create token`."
HOW_TO_GET_ONE: Final = "send one of this cluster, for instance of `kubectl create token`"


class ConsoleRule(RefusalRule):
    """A question to the console, over HTTP or NATS."""

    PARAMETER = (400, "{what}: {problem}", "Correct the parameter.")
    NO_QUEUE = (
        400,
        "name a cluster_queue, or a namespace and a local_queue",
        "Name one of them.",
    )
    TOO_MANY_NAMESPACES = (400, "there are {count} namespaces: name one", "Name a namespace.")
    NO_TOKEN = (401, f"a bearer token is needed: {HOW_TO_GET_ONE}", _SEND_ONE)
    LONG_TOKEN = (401, f"the token is too long to be one: {HOW_TO_GET_ONE}", _SEND_ONE)
    UNKNOWN_TOKEN = (
        401,
        f"the cluster does not know this token, or no more: {HOW_TO_GET_ONE}",
        _SEND_ONE,
    )
    NOT_API_SERVER = (
        401,
        'the certificate of "{name}" is not the one by which the API server asks for its users',
        "Ask the API server: `kubectl get --raw /apis/visibility.kueue.x-k8s.io/v1beta2/…`.",
    )
    NO_USER = (
        401,
        "the API server does not say in whose name it asks",
        "Ask the API server as a user whom it knows.",
    )
    RIGHT = (
        403,
        'User "{user}" cannot {what}: a role that allows it must be bound to them',
        "Bind a role: [Who may see what](../how-to/console.md).",
    )
    LOCAL_ONLY = (
        403,
        "without authorisation only localhost is answered",
        "Ask for it by `localhost`, or switch authorisation on.",
    )
    NOT_FOUND = (
        404,
        "{what} not found",
        "Correct the name; it may also be of a namespace that you may not see.",
    )
    NO_PATH = (404, "there is no such path", "[The paths](console.openapi.yaml).")
    NO_METHOD = (405, "the path does not take this method", "[The paths](console.openapi.yaml).")
    LONG_QUESTION = (413, "a question has at most {most} bytes", "Ask for less at a time.")
    LONG_ANSWER = (
        413,
        "the answer has {size} bytes, which no message holds: ask for less, or over HTTP",
        "Ask for less, or over HTTP.",
    )
    CHANGE = (422, "{problem}", "Correct the change that is to be simulated.")
    BUSY = (429, "too many simulations run at the same time", _AGAIN)
    BUSY_USER = (
        429,
        'User "{user}" has {most} simulations under way already',
        "Wait for one of them, or try again after the time that `Retry-After` says.",
    )
    STREAMS_USER = (
        429,
        'User "{user}" follows changes live on {most} pages already: close one of them',
        "Close a page. `SLUICE_CONSOLE_STREAMS_PER_USER` says how many a user may have.",
    )
    FAILED = (500, "the console failed; its log says why", "Read the log of the console.")
    NOT_LOADED = (
        500,
        (
            "what simulates cannot be loaded; the console's log says why. "
            "If the program was replaced while it ran, start the console again"
        ),
        "Restart the console.",
    )
    NOT_READ = (503, "the console has not read yet all that NATS holds", _AGAIN)
    NO_ANSWER = (503, "the API server does not say whether this user may see this", _AGAIN)
    STREAMS = (503, "too many browsers follow changes live", _AGAIN)
    SLOW = (503, "the simulation took too long: ask for less", "Ask for a shorter horizon.")
    SLOW_LOG = (
        503,
        "the log was not read within {seconds:g} s; may the console's NATS user read it?",
        "`sluice doctor` looks for rights that are missing.",
    )

    def __init__(self, code: int, text: str, remedy: str) -> None:
        """`code`: HTTP status of the refusal."""
        super().__init__(str(code), text, remedy)
        self.code = code

    @property
    def series(self) -> str:
        """The time series in which a refusal is counted, for each route."""
        return series_name(REQUESTS, code=self.label)


class StatusError(Exception):
    """A question is refused, by a rule."""

    def __init__(
        self, rule: ConsoleRule, *, retry_after_seconds: int | None = None, **values: object
    ) -> None:
        super().__init__(rule.says(**values))
        self.code = rule.code
        self.retry_after_seconds = retry_after_seconds

    def status(self) -> dict[str, Any]:
        """The error as `metav1.Status`, which kubectl and every Kubernetes client can read."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": _REASONS.get(self.code, "Unknown"),
            "code": self.code,
        }


def forbidden(user: str, what: str) -> StatusError:
    """Status 403: the user is authenticated, but not allowed to do `what`."""
    return StatusError(ConsoleRule.RIGHT, user=user, what=what)


def not_found(what: str) -> StatusError:
    """Status 404: there is no such object, or the user may not know of it."""
    return StatusError(ConsoleRule.NOT_FOUND, what=what)


def bad_request(what: str, problem: str) -> StatusError:
    """Status 400: a parameter is malformed."""
    return StatusError(ConsoleRule.PARAMETER, what=what, problem=problem)
