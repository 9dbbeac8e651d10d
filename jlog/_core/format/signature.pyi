from typing import NamedTuple

SIGNATURE_BYTES: int

class Signature(NamedTuple):
    uuid: bytes
    epoch: int | None
    first_sequence: int | None

def whose(image: bytes) -> Signature | None: ...
