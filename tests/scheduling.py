"""Hands the tests out to the workers so that the cores have work while Kafka's tests wait for brokers."""

from __future__ import annotations

import os

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

WAITING_WORKERS = 2


def busy_workers() -> int:
    """Returns how many workers take any group: two more than there are cores, as Spark's groups wait too. With more of them
    Spark's Python workers start too late."""
    return len(os.sched_getaffinity(0)) + 2


class BesideWaiting(LoadGroupScheduling):
    """Gives the last WAITING_WORKERS workers Kafka's groups and nothing else. The other workers take Kafka's groups last."""

    def _next_scope(self, node: WorkerController) -> str | None:
        """Returns the name of the group that this worker takes next; None if there is none for it."""
        number = int(node.gateway.id.removeprefix("gw")) - busy_workers()
        waits = 0 <= number < WAITING_WORKERS
        preferred = (scope for scope in self.workqueue if scope.startswith("kafka-") == waits)
        return next(preferred, None if waits else next(iter(self.workqueue), None))

    def _assign_work_unit(self, node: WorkerController) -> None:
        scope = self._next_scope(node)
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self.workqueue and self._next_scope(node) is None:
            node.shutdown()  # once it has done what it has
        else:
            super()._reschedule(node)
