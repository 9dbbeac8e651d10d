"""A worker of a shared subscriber: threads that take, finish, delay and reject records, and write down what they did.

Their lines begin with the time: `t time worker began lease records…` was handed these, each as sequence, key and digest;
`F time began sequences…` is about to finish records of the call that began then, `f` has finished them, `x` has rejected them,
`l` had lost them, `b` is about to give them back; `q time worker` is about to close; `d time began` has made all durable that
was finished before `began`; `! errno` is the error that was raised; `i` a call was interrupted, `s` it had no memory.
"""

from __future__ import annotations

import gc
import threading
import time
import zlib
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import jlog
from torture.raising import Interrupted, Raising
from torture.records import check_record
from torture.subscriber import WAIT_SECONDS, expected

if TYPE_CHECKING:
    from collections.abc import Callable

    from torture.gate import Gate
    from torture.log import Log

NAME = "work"
now = time.monotonic_ns


class Hand:
    """One Worker, and its lines. number: differs from that of other Workers of this process."""

    def __init__(self, worker: jlog.Worker, number: int, lease: float | None, log: Log, raising: Raising) -> None:
        self.worker, self._number, self._log, self._raising = worker, number, log, raising
        self._lease = int((lease or 0) * 1e9)

    def take(self, most: int) -> tuple[int, list[jlog.Task]]:
        began = now()
        tasks = self._raising.call(lambda: self.worker.take(most, timeout=WAIT_SECONDS))
        if tasks:
            told = [f"{task.sequence}:{_key_of(task)}:{check_record(task):08x}" for task in tasks]
            self._log("t", now(), self._number, began, self._lease, *told)
        return began, tasks

    def ack(self, began: int, tasks: list[jlog.Task], *, durable: bool = False) -> None:
        sequences = [task.sequence for task in tasks]
        self._log("F", now(), began, *sequences)
        lost: set[int] = set()
        acking = now()
        try:
            self._raising.call(lambda: self.worker.ack(tasks, durable=durable))
        except jlog.LeaseLost as error:
            lost = {task.sequence for task in error.tasks}
            self._lost(began, sorted(lost))
        if len(lost) < len(sequences):
            self._log("f", now(), began, *(sequence for sequence in sequences if sequence not in lost))
        if durable:
            self._log("d", now(), acking)

    def reject(self, began: int, task: jlog.Task) -> None:
        self._log("F", now(), began, task.sequence)
        rejecting = now()
        try:
            self._raising.call(lambda: task.reject("torture"))
        except jlog.LeaseLost:
            self._lost(began, [task.sequence])
            return
        self._log("x", now(), began, task.sequence)
        self._log("d", now(), rejecting)

    def give_back(self, began: int, task: jlog.Task, chance: Random) -> None:
        self._log("b", now(), began, task.sequence)
        try:
            if chance.random() < 0.5:
                delay = chance.choice((None, 0, 0.01, 0.3))
                self._raising.call(lambda: task.nack(delay=delay))
            else:
                self._raising.call(task.release)
        except jlog.LeaseLost:
            self._lost(began, [task.sequence])

    def drop(self, began: int, tasks: list[jlog.Task]) -> None:
        """Drops these tasks: once the caller has no reference to them either, they are given back."""
        self._log("b", now(), began, *(task.sequence for task in tasks))

    def _lost(self, began: int, sequences: list[int]) -> None:
        if not self._lease:
            raise AssertionError(f"{sequences} were lost without a lease")
        self._log("l", now(), began, *sequences)

    def close(self) -> None:
        self._log("q", now(), self._number)
        self._raising.call(self.worker.close)


def _key_of(task: jlog.Task) -> str:
    return "-" if task.key is None else f"{zlib.crc32(task.key):08x}"


class Crew:
    """The threads of one process, which share a Worker."""

    def __init__(self, spec: dict[str, Any], gate: Gate, log: Log) -> None:
        self._spec, self._gate, self._log = spec, gate, log
        self._opening = threading.Lock()
        self._hand: Hand | None = None
        self._number = 0
        chance = Random(f"{spec['seed']} {spec['name']}") if spec["raising"] else None
        self._raising = Raising(chance, log, spec["without"])

    def run(self, thread: int) -> None:
        chance = Random(f"{self._spec['seed']} {self._spec['name']} {thread}")
        while self._gate.is_open():
            try:
                self._turn(chance)
            except Interrupted:
                gc.collect()  # what was interrupted may hold a lock as long as its frames are there
        self._close(self._hand)

    def _turn(self, chance: Random) -> None:
        hand: Hand | None = None
        held: list[tuple[Hand, int, list[jlog.Task]]] = []
        try:
            hand = self._open(chance)
            for _ in range(chance.randrange(1, 60)):
                if not self._gate.is_open():
                    break
                self._step(hand, chance, held)
            if chance.random() < 0.5:
                self._close(hand)
        except jlog.JournalClosed:  # another thread has closed it
            self._close(hand)
        except jlog.PositionLost:
            if not self._spec["may_lose"]:
                raise
        except (OSError, jlog.JournalLocked) as error:
            self._close(hand)  # it may have records that nobody will finish
            expected(error, self._log)
        finally:
            for owner, began, tasks in held:
                owner.drop(began, tasks)

    def _open(self, chance: Random) -> Hand:
        with self._opening:
            if self._hand is None:
                lease = chance.choice((None, None, 0.02, 0.2))
                timeout = chance.choice((None, 0.5))
                open_worker = partial(jlog.Worker, self._spec["path"], NAME, lease=lease, lock_timeout=timeout)
                worker = self._raising.call(open_worker)
                self._number += 1
                self._hand = Hand(worker, self._number, lease, self._log, self._raising)
            return self._hand

    def _close(self, hand: Hand | None) -> None:
        with self._opening:
            if hand is None or hand is not self._hand:
                return
            self._hand = None
        try:
            hand.close()
        except Interrupted:
            gc.collect()  # the object that is gone has freed its place
        except (OSError, jlog.JournalLocked) as error:
            expected(error, self._log)

    def _step(self, hand: Hand, chance: Random, held: list[tuple[Hand, int, list[jlog.Task]]]) -> None:
        """Takes records, and ends those of this take or of an earlier one: some are held for long, beside what is short."""
        began, tasks = hand.take(chance.choice((1, 3, 50, 50, 300)))
        held.append((hand, began, tasks))
        for task in tasks[: chance.choice((0, 1, len(tasks)))]:
            task.begin()
        if chance.random() < 0.1:
            time.sleep(chance.random() * 0.1)
        if len(held) < 4 and chance.random() < 0.3:
            return
        ended = chance.randrange(len(held))
        self._end(*held[ended], chance)
        del held[ended]

    def _end(self, hand: Hand, began: int, tasks: list[jlog.Task], chance: Random) -> None:
        if chance.random() < 0.8:
            hand.ack(began, tasks, durable=chance.random() < 0.1)
            return
        if chance.random() < 0.1:
            hand.drop(began, tasks)
            return
        chance.shuffle(tasks)
        for task in tasks:
            do = chance.random()
            if do < 0.05:
                hand.reject(began, task)
            elif do < 0.4:
                hand.give_back(began, task, chance)
            else:
                hand.ack(began, [task])


def drain(path: Any, log: Log, is_over: Callable[[], bool], *, may_lose: bool) -> None:
    """Finishes all that is left, until `is_over` after a take that found nothing. may_lose: retention may have removed some."""
    with jlog.Worker(path, NAME) as worker:
        hand = Hand(worker, 1, None, log, Raising(None, log))
        while True:
            try:
                began, tasks = hand.take(500)
            except jlog.PositionLost:
                if not may_lose:
                    raise
                continue  # it is raised once
            if not tasks and is_over():
                break
            hand.ack(began, tasks)
        log("q", now(), 1)
