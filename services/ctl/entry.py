"""Where the command `sluice` begins. What it imports takes a moment, in which Ctrl-C may come, too."""

import gc
import os
import sys
from typing import Final

_INTERRUPTED: Final = 130
"""`Exit.INTERRUPTED`, whose import would be such a moment itself."""

_GARBAGE_ALLOCATIONS: Final = 500_000
"""What is imported is no garbage: looking through it after each 700 allocations took a tenth of the time."""


def main() -> None:
    """Run the command. Ctrl-C ends it with its exit status and without a traceback."""
    gc.set_threshold(_GARBAGE_ALLOCATIONS)
    # Nobody extends pydantic here, and to look for who might reads what is said of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        from services.ctl.main import main as command  # noqa: PLC0415

        command()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
