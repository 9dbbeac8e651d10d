from typing_extensions import disjoint_base

@disjoint_base
class Waker:
    def ring(self) -> None: ...
    @property
    def rings(self) -> int: ...
