"""Gives memory back to the system after a service has let go of much at once."""

import ctypes
import gc


def give_back() -> None:
    """Collect what forms cycles, which services do seldom, and return the pages that are free then.

    Only glibc is asked: other libraries return what they can by themselves. Python keeps what small objects
    lay in, for the next ones.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
