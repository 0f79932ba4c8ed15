"""Where the command `sluice` begins. What it imports takes a moment, in which Ctrl-C may come, too.

Only what Python has loaded already is imported here: `signal` and `typing` load a dozen modules themselves.
"""

import _signal  # type: ignore[import-not-found]
import gc
import os
import sys

_INTERRUPTED = 130
"""`Exit.INTERRUPTED`, whose import would be such a moment itself."""

_GARBAGE_ALLOCATIONS = 500_000
"""What is imported is no garbage: looking through it after each 700 allocations took a tenth of the time."""


def _end(_number: int, _frame: object) -> None:
    """End at once: nothing has been begun."""
    os._exit(_INTERRUPTED)


# Until `main` runs, there is nobody who could catch the exception. Who ignores Ctrl-C goes on to do so.
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _end)


def main() -> None:
    """Run the command. Ctrl-C ends it with its exit status and without a traceback."""
    gc.set_threshold(_GARBAGE_ALLOCATIONS)
    # Nobody extends pydantic here, and to look for who might reads what is said of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        if _signal.getsignal(_signal.SIGINT) is _end:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        from services.ctl.main import main as command  # noqa: PLC0415

        command()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
