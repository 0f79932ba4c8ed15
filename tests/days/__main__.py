"""``python -m tests.days``: `make bench-days`."""

import sys

from tests.days.days import main

sys.exit(main())
