"""Messages between a pool and its child processes: four bytes of length, then JSON."""

import struct
from typing import Final

HEADER: Final = struct.Struct(">I")
"""The length of what follows."""

EVALUATES: Final = "evaluates"
VALIDATES: Final = "validates"
"""What a child is for: one that only evaluates expressions needs no models of kinds."""
