"""Messages between a pool and its child processes: four bytes of length, then JSON."""

import struct
from typing import Final

HEADER: Final = struct.Struct(">I")
"""The length of what follows."""
