"""Results of decisions, and messages that a service gave up on."""

from datetime import datetime
from typing import ClassVar, Literal

from shared.contracts import subjects
from shared.contracts.kube.moments import Moment
from shared.contracts.messages.base import Message, WorkloadMessage
from shared.contracts.subjects import Stream


class Outcome(WorkloadMessage):
    """The result of a decision that a patcher carried out."""

    stream: ClassVar[Stream] = Stream.OUTCOMES
    type: ClassVar[str] = "dev.sluicegate.outcome.v1"

    uid: str
    result: Literal["applied", "refused", "gone"]
    """`refused`: the cluster never accepts it (Tekton's webhook, a policy), so quota releases the
    workload."""

    action: str
    """`release`, `suspend`, `reserve`, `finish`. `hold`: whether a decision about a job that holds quota can
    be carried out; `refused`: it cannot, and the quota stays with it."""

    term: int
    number: int
    """Of the decision; both 0 where it cannot be read."""

    version: str = ""
    """`resourceVersion` of the job afterwards. A `WorkloadState` of an older one does not contain the
    result."""

    message: str = ""
    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.outcome.<cluster>.<namespace>.<name>``."""
        return subjects.join("outcome", self.cluster, self.namespace, self.name)


class DeadLetter(Message):
    """A message that a service gave up on, with the reason."""

    stream: ClassVar[Stream] = Stream.DEAD
    type: ClassVar[str] = "dev.sluicegate.dead.v1"

    service: str
    original_subject: str
    original_sequence: int
    reason: str
    body: str
    """The original body; in base64 if it is not UTF-8 (`encoding` then says so)."""

    encoding: Literal["utf-8", "base64"] = "utf-8"
    state: Literal["open", "handled", "dropped"] = "open"
    """`handled`: a later try succeeded. `dropped`: an operator gave it up."""

    tries: int = 1
    """How often the service gave up, this time included."""

    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.dead.<service>.<original subject>``."""
        return f"{subjects.ROOT}.dead.{subjects.encode(self.service)}.{self.original_subject}"

    def closed(self, state: Literal["handled", "dropped"], at: datetime) -> "DeadLetter":
        """The tombstone of this letter: nobody has to look at it any more."""
        return self.model_copy(update={"state": state, "body": "", "encoding": "utf-8", "at": at})


class RetryRequest(Message):
    """An operator's request to a service: handle the newest message of a subject once more."""

    stream: ClassVar[Stream] = Stream.DEAD
    type: ClassVar[str] = "dev.sluicegate.retry.v1"

    cluster: str
    service: str
    original_subject: str
    tries: int
    """Of the dead letter that it is about."""

    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.retry.<cluster>.<service>.<original subject>``."""
        return f"{subjects.join('retry', self.cluster, self.service)}.{self.original_subject}"
