"""A position in another journal is compared with the epochs of the journal that is there now."""

import pytest

from jlog.storage.epochs import ForeignPosition, Shared
from jlog.storage.meta import Meta

UUID = bytes(range(16))
ORIGINAL, RESTORED, AGAIN = 11, 2**63 + 5, 7


def meta(*epochs):
    return Meta(UUID, list(epochs))


def test_a_position_needs_a_uuid_an_epoch_and_a_sequence():
    with pytest.raises(TypeError):
        ForeignPosition(UUID.hex(), sequence=3)
    for uuid, epoch, sequence in (("", 1, 3), (UUID.hex(), None, 3), (UUID.hex(), 1 << 64, 3), (UUID.hex(), 1, -1)):
        with pytest.raises(ValueError, match=r"uuid is not|epoch is not|sequence is not"):
            ForeignPosition(uuid, epoch, sequence)


def test_its_text_and_its_fields_are_read_back():
    position = ForeignPosition(UUID.hex(), RESTORED, 123)
    assert str(position) == f"{UUID.hex()}:8000000000000005:123"
    assert ForeignPosition.parse(str(position)) == position
    assert ForeignPosition.from_fields({**position.fields(), "begin": 0}) == position


@pytest.mark.parametrize("text", ["", "123", "a:b", f"{UUID.hex()}::3", f"{UUID.hex()}:5:3:4", f"{UUID.hex()}:5:-3"])
def test_any_other_text_is_refused(text):
    with pytest.raises(ValueError, match="UUID:EPOCH:SEQUENCE"):
        ForeignPosition.parse(text)


def test_its_epoch_is_that_of_the_record_before_it():
    epochs = meta((ORIGINAL, 0), (AGAIN, 10), (RESTORED, 10), (3, 20))  # nothing was appended in the second one
    assert [ForeignPosition.of(epochs, sequence).epoch for sequence in (0, 10, 11, 20, 21)] == [
        ORIGINAL,
        ORIGINAL,
        RESTORED,
        RESTORED,
        3,
    ]


def test_a_restored_journal_shares_what_was_before_its_new_epoch():
    position = ForeignPosition.of(meta((ORIGINAL, 0)), 20)
    assert position.shared_with(meta((ORIGINAL, 0))) == Shared(20, "")
    restored = position.shared_with(meta((ORIGINAL, 0), (RESTORED, 10), (AGAIN, 15)))
    assert restored == Shared(10, "it has lost its tail, or is another copy")


def test_a_number_below_the_new_epoch_is_the_same_record_in_both():
    position = ForeignPosition.of(meta((ORIGINAL, 0), (AGAIN, 10)), 7)
    assert position.shared_with(meta((ORIGINAL, 0), (RESTORED, 10))) == Shared(7, "")


def test_nothing_is_certain_of_an_unknown_epoch_or_of_another_journal():
    position = ForeignPosition.of(meta((ORIGINAL, 0), (AGAIN, 10)), 12)
    assert position.shared_with(meta((ORIGINAL, 0), (RESTORED, 10))).end == 0
    assert position.shared_with(Meta(bytes(16), [(ORIGINAL, 0)])) == Shared(0, "it is another journal now")
