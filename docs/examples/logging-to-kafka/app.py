"""A process of an application. It logs with Python's `logging`, into the journal that it shares with the other processes."""

from __future__ import annotations

import logging
import logging.config

log = logging.getLogger("shop.checkout")


def configure(journal: str) -> None:
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,  # such as `log` above
            "handlers": {
                "journal": {
                    "class": "jlog.logging.JournalHandler",
                    "journal": journal,
                    "key": "process_name",  # Kafka keeps the order of the messages of one key
                    "fields": ["level", "logger", "process"],
                    "lock_timeout": 30,  # seconds: a line is worth a wait, so that a busy machine drops none
                },
            },
            "root": {"level": "INFO", "handlers": ["journal"]},
        }
    )


def accept(order: int) -> None:
    log.info("order %d accepted", order, extra={"order": order})
