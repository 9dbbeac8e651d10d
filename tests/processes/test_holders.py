"""Errors of locks name the process that holds what the call needs, and a Reader can wait for a name."""

import os
import threading

import pytest

import jlog


def others(child):
    return rf"\(PID {child.pid}\)"


def test_a_busy_subscriber_names_its_process(tmp_path, spawn):
    path = tmp_path / "j"
    jlog.Journal.create(path)
    child = spawn()
    child.call("subscribe", "billing", str(path))
    for call in (
        lambda: jlog.Reader(path, "billing"),
        lambda: jlog.Journal(path).remove_subscriber("billing"),
        lambda: jlog.Journal.delete(path),
    ):
        with pytest.raises(jlog.SubscriberBusy, match=others(child)):
            call()


def test_a_name_that_this_process_has_is_told_too(tmp_path):
    with (
        jlog.Reader(tmp_path / "j", "billing"),
        pytest.raises(jlog.SubscriberBusy, match=rf"by Workers of this process \(PID {os.getpid()}\)"),
    ):
        jlog.Reader(tmp_path / "j", "billing")


def test_an_exclusive_writer_names_its_process(tmp_path, spawn):
    path = tmp_path / "j"
    child = spawn()
    child.call("open_writer", "w", str(path), {"exclusive": True})
    with pytest.raises(jlog.JournalLocked, match=others(child)):
        jlog.Writer(path)
    for call in (jlog.Journal(path).repair, lambda: jlog.Journal.delete(path)):
        with pytest.raises(jlog.JournalLocked, match=others(child)):
            call()


def test_a_reader_waits_for_a_busy_name_as_long_as_its_lock_timeout(tmp_path):
    path = tmp_path / "j"
    first = jlog.Reader(path, "billing")
    with pytest.raises(jlog.SubscriberBusy):
        jlog.Reader(path, "billing", lock_timeout=0.01)
    opened = []
    waiting = threading.Thread(target=lambda: opened.append(jlog.Reader(path, "billing", lock_timeout=100)))
    waiting.start()
    first.close()
    waiting.join()
    (second,) = opened
    second.commit()
    second.close()


def test_without_a_lock_timeout_a_busy_name_is_told_at_once(tmp_path):
    with jlog.Reader(tmp_path / "j", "billing"), pytest.raises(jlog.SubscriberBusy):
        jlog.Reader(tmp_path / "j", "billing")
