from typing_extensions import disjoint_base

@disjoint_base
class Body:
    @staticmethod
    def of_values(values: tuple[bytes, ...]) -> Body: ...
    def add_state(self, key: bytes, value: bytes | None) -> None: ...
