"""Warnings in the log about work beside a call, such as cleaning after a roll: the call itself has succeeded."""

import logging


cpdef int warn(path, what, error) except -1:
    """Logs that this work on a journal has failed. No exception of a handler comes out of it: the program would take it for a
    failure of its call, and make the call again. The stack may also be too full to log anything. A signal's exception does come
    out of it."""
    try:
        logging.getLogger("jlog").warning("%s: %s: %s", path, what, str(error) or type(error).__name__)
    except Exception:  # noqa: BLE001
        return 0
    return 0
