"""The records that a topic refuses, as far as its settings show, and warnings about these settings."""

from __future__ import annotations

import time
from collections.abc import Mapping

from jlog.flow.records import Headers, RecordLike

BATCH_OVERHEAD = 512  # header of a batch with one record, and the lengths of the record
LIMIT_BYTES = 1_048_588  # the default of Kafka
_EVER = 1 << 62


class Rules:
    """Rules by the settings of a topic, and by the client's message.max.bytes if the user gives one. The broker checks them
    too, but then fails a whole batch."""

    def __init__(self, config: Mapping[str, str], message_max_bytes: int | str | None = None) -> None:
        self._config = config
        self.max_message_bytes: int = int(config.get("max.message.bytes", LIMIT_BYTES))
        if message_max_bytes is not None:
            self.max_message_bytes = min(self.max_message_bytes, int(message_max_bytes))
        self.limit_bytes: int = max(1_000, self.max_message_bytes - BATCH_OVERHEAD)
        self.needs_key: bool = "compact" in config.get("cleanup.policy", "")

    def times_ms(self) -> tuple[int, int]:
        """Returns the earliest and the latest time that a record may have now."""
        if self._config.get("message.timestamp.type") == "LogAppendTime":
            return -_EVER, _EVER
        now_ms = int(time.time() * 1000)
        before_ms = int(self._config.get("message.timestamp.before.max.ms", _EVER))
        after_ms = int(self._config.get("message.timestamp.after.max.ms", _EVER))
        return now_ms - min(before_ms, _EVER), now_ms + min(after_ms, _EVER)

    def refusal(self, record: RecordLike, key: bytes | None) -> str:
        """Returns why the topic would refuse the record; an empty text where no rule does."""
        size = len(record.value or b"") + overhead_bytes_of(key, record.headers)
        if size > self.limit_bytes:
            return f"{size} bytes are more than max.message.bytes={self.max_message_bytes} has room for"
        if self.needs_key and key is None:
            return "it has no key, and the topic is compacted"
        earliest_ms, latest_ms = self.times_ms()
        if record.timestamp_us is not None and not earliest_ms <= milliseconds(record.timestamp_us) <= latest_ms:
            return "its time is too far from now (message.timestamp.after.max.ms, message.timestamp.before.max.ms)"
        return ""

    def warnings(self, oldest_us: int | None) -> list[str]:
        """Returns warnings about settings that a mirror cannot change. oldest_us: the time of the oldest record that is to be
        mirrored."""
        found = []
        config = self._config
        retention_ms = int(config.get("retention.ms", -1))
        deletes = retention_ms >= 0 and "delete" in config.get("cleanup.policy", "delete")
        if deletes and oldest_us is not None and time.time() * 1000 - oldest_us / 1000 > retention_ms:
            found.append(
                f"records are older than retention.ms={retention_ms}: the brokers take them and remove them at once; set a "
                f"longer retention.ms before mirroring"
            )
        if config.get("message.timestamp.type") == "LogAppendTime":
            found.append("the topic gives every record a time of its own (message.timestamp.type=LogAppendTime)")
        if self.needs_key:
            found.append("the topic is compacted: of each key only the newest record stays")
        return found


def overhead_bytes_of(key: bytes | None, headers: Headers) -> int:
    """Returns the size of a record without its value."""
    return len(key or b"") + sum(len(name) + len(value or b"") for name, value in headers)


def milliseconds(time_us: int) -> int:
    """Rounds down to milliseconds, and never returns 0: the client has no value for 1970-01-01T00:00:00.000, and takes 0 as
    now."""
    return time_us // 1000 or 1
