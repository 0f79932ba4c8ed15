"""What a command says when it cannot do what it was asked, and with which exit status."""

import errno
import sys
from contextlib import suppress
from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """Exit statuses of `sluice`. Scripts may rely on them; `sluice --help` lists them."""

    OK = 0
    """Done."""

    FAILED = 1
    """It ran, and the answer is no: a check failed, a service ended by itself."""

    WRONG_INPUT = 2
    """An option, a file or a manifest is wrong. Trying again will not help."""

    UNREACHABLE = 3
    """NATS or the cluster does not answer. Trying again may help."""

    INTERRUPTED = 130
    """Ctrl-C."""

    NO_PLAN = 255
    """`sluice plan` could not say: there 1 means that something would change."""


class CommandError(Exception):
    """An expected failure: shown as sentences, never as a traceback."""

    def __init__(
        self, what: str, problem: str, *, hint: str = "", status: Exit = Exit.WRONG_INPUT
    ) -> None:
        super().__init__(f"{what}: {problem}")
        self.hint = hint
        """What to do about it."""

        self.status = status


def print_line(line: str) -> None:
    """Print a line of a program that runs on. It is dropped where it cannot be written.

    Whoever reads the output may go; a command that answers and ends uses `print`, and fails then.
    """
    with suppress(AttributeError, OSError, ValueError):  # There may be no standard output at all.
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Why a file cannot be read, for a sentence that names the file."""
    if isinstance(error, UnicodeDecodeError):
        return "cannot be read: it is not text in UTF-8"
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return f"cannot be read: {(error.strerror or type(error).__name__).lower()}"


def not_yaml(error: Exception) -> str:
    """Why a text is not YAML, and in which line, for a sentence that names the file."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = "" if mark is None else f" in line {mark.line + 1}"
    problem = getattr(error, "problem", None) or getattr(error, "context", None) or error
    return f"is not YAML{line}: {' '.join(str(problem).split())}"


def unwritable(error: OSError) -> str:
    """Why a file cannot be written, in words."""
    return f"cannot be written: {(error.strerror or type(error).__name__).lower()}"


_ENVIRONMENT: Final = {
    errno.ENOSPC: "make room on the disk, or name a file on another one",
    errno.EDQUOT: "make room: the quota of this disk is used up",
    errno.EROFS: "name a place that can be written",
    errno.EACCES: "name a place that this user may use, or change its permissions",
    errno.ENOTDIR: "name a folder: a part of this path is a file",
    errno.EISDIR: "name a file: this is a folder",
    errno.EEXIST: "name a folder: there is a file of this name",
    errno.EADDRINUSE: "stop what listens there, or set another port",
    errno.EADDRNOTAVAIL: "set an address that this machine has",
}
"""Errors of the machine that a user can mend, and how."""


def environment_error(error: OSError, what: str = "") -> CommandError | None:
    """What to say if something around the program is wrong, and not the program; None: it may be.

    `what` is the file or address, if the error does not name it.
    """
    hint = _ENVIRONMENT.get(error.errno or 0)
    if hint is None:
        return None
    named = what or str(error.filename or "") or "the output"
    return CommandError(named, (error.strerror or str(error)).lower(), hint=hint)
