"""The types of a journal's records, which its state names: what one writer with a codec knows of those before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jlog._core.system.lock import Deadline
from jlog.errors import RecordTooLarge
from jlog.positions.position_files import table_locked
from jlog.storage.state import state_of

if TYPE_CHECKING:
    from jlog._core.write.writer import Writer
    from jlog.typed.codec import Codec


def settle_types(writer: Writer, codec: Codec, deadline: Deadline) -> None:
    """Lets the codec compare its types with those that the journal has had, and stores what it says. Raises SchemaConflict."""
    new_state = getattr(codec, "new_state", None)
    if new_state is None:
        return
    # Two writers that open at once: the second reads what the first has stored.
    with table_locked(writer.path, deadline):
        changes = new_state(state_of(writer.path), writer.path)
        if not changes:
            return
        try:
            writer.extend((), state=changes)
        except RecordTooLarge as error:
            raise RecordTooLarge(
                f"{writer.path}: the schema of {codec!r} is stored in the journal's state, and does not fit: {error}; "
                "give fewer types, types with fewer fields, or json(dict), which takes any object"
            ) from None
