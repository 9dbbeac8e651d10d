"""CPython 3.11 without memory loses exceptions: prints the SystemErrors that come instead. No package is imported."""

import _testcapi


def inner():
    raise KeyError


def outer():
    """Leaves a frame by an exception while no object stands for its own frame: CPython makes one for the traceback's frame to
    refer to, and without memory it clears the error that is under way (take_ownership() in Python/frame.c)."""
    inner()


def from_c():
    min([1], key=lambda _: outer())


def error_of(call, at, count):
    try:
        try:
            _testcapi.set_nomemory(at, at + count)
            call()
        finally:
            _testcapi.remove_mem_hooks()
    except (KeyError, MemoryError):
        return None
    except SystemError as error:
        return str(error)


if __name__ == "__main__":
    errors = {error_of(call, at, count) for call in (outer, from_c) for at in range(100) for count in (1, 3, 1000)}
    for error in sorted(errors - {None, ""}):  # some releases of 3.11 have no memory for the text either
        print(error)  # noqa: T201
