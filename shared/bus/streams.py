"""The streams as `deploy/nats/streams.yaml` declares them, read and validated.

An operator changes ages and sizes in the file, without Python. This module derives the configurations
of JetStream from it: each log gets a view.
"""

from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shared.contracts.kube.numbers import whole_number
from shared.contracts.messages.base import COMMITTED, EPOCH, FORMAT
from shared.contracts.subjects import ROOT, Stream

DATA: Final = Path(__file__).parents[2] / "deploy" / "nats"
"""Next to the packages, in the repository and in an installation."""

STREAMS_FILE: Final = DATA / "streams.yaml"
VIEW_SUFFIX: Final = "_NOW"
LEASES: Final = "LEASES"
LIVE: Final = "live"
"""Before the subject under which a log publishes once more what it has stored, for those who only listen."""

LEADER_ELECTED: Final = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*"
"""On which nats-server tells that another server leads the stream with the name in the last place."""

OBJECTS: Final = "objects"

LEASES_BYTES_MAX: Final = 64 << 20
LEASE_BYTES_MAX: Final = 4 << 10
"""Header and holder of one; some hundred bytes are usual. So 16,000 fit, and none pushes out others."""

_SHORTEST_WINDOW: Final = 100_000_000
"""100 ms is the shortest window for duplicates that JetStream allows: so long it keeps each id in memory."""

_DAY: Final = 86_400 * 10**9
_GIB: Final = 1 << 30

Config = dict[str, Any]
"""A stream configuration as JetStream's API has it; durations in nanoseconds."""


class CatalogueError(Exception):
    """`streams.yaml` is invalid."""

    def __init__(self, path: Path, cause: Exception) -> None:
        if isinstance(cause, ValidationError):
            problem = cause.errors(include_url=False)[0]
            where = ".".join(str(part) for part in problem["loc"]) or "file"
            detail = f"{where}: {problem['msg']} (got {str(problem.get('input'))[:80]!r})"
        else:
            detail = str(cause)
        super().__init__(f"{path}: {detail}")


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Defaults(_Data):
    """Settings of a log that does not override them."""

    max_age_days: float = Field(gt=0)
    max_gib: float = Field(gt=0)
    duplicate_window_seconds: float = Field(ge=60)
    """At least as long as a publisher retries, or a retry would be stored twice."""

    discard: Literal["old", "new"]
    spoke_hours: float = Field(gt=0)
    """In how many hours a spoke may write its part of a log again; the gateway refuses more."""


class Log(_Data):
    """One log. Its view is derived from it."""

    description: str
    subjects: list[str] = Field(min_length=1)
    max_age_days: float | None = Field(default=None, gt=0)
    max_gib: float | None = Field(default=None, gt=0)
    discard: Literal["old", "new"] | None = None
    spoke_hours: float | None = Field(default=None, gt=0)
    spoke_configuration_mib: float = Field(default=16, gt=0)
    """Of `OBSERVED`: MiB of all objects together that configure the cluster of one spoke."""

    live: bool = True
    """Whether it publishes once more what it has stored, below ``live.``, for people who listen."""


class Leases(_Data):
    """The stream of leases."""

    name: Literal["LEASES"]
    subjects: list[str] = Field(min_length=1)


class Objects(_Data):
    """The bucket for bodies that are too large for a message."""

    bucket: Literal["objects"]
    max_gib: float = Field(gt=0)


class Catalogue(_Data):
    """All streams that must exist before a service starts."""

    defaults: Defaults
    logs: dict[str, Log] = Field(min_length=1)
    leases: Leases
    objects: Objects

    def configs(self, *, replicas: int = 1) -> dict[str, Config]:
        """Stream name to its configuration, each log before its view."""
        configs: dict[str, Config] = {}
        for name, log in self.logs.items():
            configs[name] = self._log(name, log)
            configs[view_of(name)] = _view(name, max_bytes=configs[name]["max_bytes"])
        configs[self.leases.name] = _base(self.leases.name, "Who is the one.") | {
            "subjects": self.leases.subjects,
            "max_bytes": LEASES_BYTES_MAX,
            "max_msg_size": LEASE_BYTES_MAX,
            # No lease has an id: those that somebody sends would stay for two minutes.
            "duplicate_window": _SHORTEST_WINDOW,
            "max_msgs_per_subject": 1,
            "allow_msg_ttl": True,
            # Markers of expiry need roll-ups, and with these a header of one holder drops all other leases.
            "subject_delete_marker_ttl": 0,
            "allow_rollup_hdrs": False,
        }
        configs[f"OBJ_{self.objects.bucket}"] = self._objects()
        return {name: config | {"num_replicas": replicas} for name, config in configs.items()}

    @property
    def configuration_bytes(self) -> int:
        """How many bytes all objects may have together that configure the cluster of one spoke."""
        return int(self.logs[Stream.OBSERVED].spoke_configuration_mib * (1 << 20))

    def spoke_hours(self, name: str) -> float:
        """In how many hours a spoke may write its part of this log again."""
        hours = self.logs[name].spoke_hours
        return self.defaults.spoke_hours if hours is None else hours

    def _log(self, name: str, log: Log) -> Config:
        age = log.max_age_days if log.max_age_days is not None else self.defaults.max_age_days
        gib = log.max_gib if log.max_gib is not None else self.defaults.max_gib
        return _base(name, log.description) | {
            "subjects": log.subjects,
            "discard": log.discard or self.defaults.discard,
            "max_age": int(age * _DAY),
            "max_bytes": int(gib * _GIB),
            "duplicate_window": int(self.defaults.duplicate_window_seconds * 10**9),
            # What a batch has not committed is on the disk, and in no bound of its log.
            "allow_atomic": False,
            **({"republish": {"src": f"{ROOT}.>", "dest": f"{LIVE}.{ROOT}.>"}} if log.live else {}),
        }

    def _objects(self) -> Config:
        # The subjects and switches are those of JetStream's object store.
        bucket = self.objects.bucket
        return _base(f"OBJ_{bucket}", "Bodies that are too large for a message.") | {
            "subjects": [f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
            "discard": "new",
            "max_bytes": int(self.objects.max_gib * _GIB),
            "allow_rollup_hdrs": True,
        }


def view_of(log: str) -> str:
    """The stream that keeps the last message of each subject of `log`."""
    return log + VIEW_SUFFIX


def epoch_of(config: Config) -> int:
    """When a stream was made, in milliseconds since 1970; 0 where nobody wrote it down."""
    return whole_number(str((config.get("metadata") or {}).get(EPOCH, ""))) or 0


def committed_of(config: Config) -> str:
    """The format to which a log or view is committed, as it is written there; empty: to none."""
    return str((config.get("metadata") or {}).get(COMMITTED, ""))


def newer_format(config: Config, known: int = FORMAT) -> str:
    """The same, if it is above the format `known`; empty: it is not.

    A text that is no number is above all: only a newer release can have given it a meaning.
    """
    text = committed_of(config)
    number = whole_number(text)
    return text if text and (number is None or number > known) else ""


def is_log_or_view(name: str) -> bool:
    """Whether it is a log or a view, which have an epoch and a format.

    What holds leases or bodies is never read by sequence.
    """
    return name != LEASES and not name.startswith("OBJ_")


def load(path: Path = STREAMS_FILE) -> Catalogue:
    """Read and validate. Raises `CatalogueError` with file, field and value."""
    try:
        return Catalogue.model_validate(yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise CatalogueError(path, error) from error


def _base(name: str, description: str) -> Config:
    return {
        "name": name,
        "description": description,
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msgs_per_subject": -1,
        "allow_direct": True,
    }


def _view(log: str, *, max_bytes: int) -> Config:
    return _base(view_of(log), f"The last message of each subject of {log}.") | {
        "sources": [{"name": log}],
        "max_bytes": max_bytes,
        "max_msgs_per_subject": 1,
        # The log has dropped duplicates already. While the view is rebuilt, a window here would
        # drop a second state with the same id.
        "duplicate_window": _SHORTEST_WINDOW,
    }
