"""jlog.logging.JournalHandler: log records become records, and whatever happens to the journal, the application goes on."""

import errno
import json
import logging
import logging.config
import logging.handlers
import multiprocessing
import os
import queue
import re
import textwrap
import threading
import uuid
from itertools import count

import pytest

import jlog
from behaviour.journals import SMALL, records, values
from elsewhere import mounted_by, python, run_python, small_disk
from jlog import logging as jlog_logging
from jlog.logging import JournalHandler
from patience import HUNG_SECONDS


@pytest.fixture
def log():
    """A logger of the test's own."""
    logger = logging.getLogger(f"test.{uuid.uuid4().hex}")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield logger
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


@pytest.fixture
def handler(log, path):
    handler = JournalHandler(path)
    log.addHandler(handler)
    return handler


@pytest.fixture
def retries_at_once(monkeypatch):
    monkeypatch.setattr(jlog_logging, "RETRY_SECONDS", 0.0)


def headers(record):
    return dict(record.headers)


def last(path):
    return records(path)[-1]


# --- What a log record becomes -----------------------------------------------------------------------------------


def test_the_message_is_the_value_and_the_loggers_name_the_key(handler, log, path):
    log.info("%s costs %d", "tea", 3)
    assert (last(path).value, last(path).key) == (b"tea costs 3", log.name.encode())


def test_the_timestamp_is_when_the_log_record_was_made(handler, log, path):
    record = log.makeRecord(log.name, logging.INFO, __file__, 1, "late", (), None)
    record.created = 1_700_000_000.123456
    log.handle(record)
    assert last(path).timestamp_us == 1_700_000_000_123_456


def test_headers_say_where_it_came_from(handler, log, path):
    log.warning("x")
    found = headers(last(path))
    assert found["level"] == b"WARNING"
    assert found["logger"] == log.name.encode()
    assert found["module"] == b"test_logging_handler"
    assert found["process"] == str(os.getpid()).encode()
    assert found["thread"] == threading.current_thread().name.encode()
    assert set(found) == {"level", "logger", "module", "line", "process", "thread"}


def test_fields_are_chosen_by_name(log, path):
    log.addHandler(JournalHandler(path, fields=["level", "function"]))
    log.error("x")
    assert headers(last(path)) == {"level": b"ERROR", "function": b"test_fields_are_chosen_by_name"}


def test_extra_fields_become_headers(handler, log, path):
    log.info("x", extra={"user": "anna", "count": 3, "raw": b"\xff", "nothing": None})
    found = headers(last(path))
    assert (found["user"], found["count"], found["raw"], found["nothing"]) == (b"anna", b"3", b"\xff", None)


def test_an_extra_does_not_hide_a_field(handler, log, path):
    log.info("x", extra={"level": "mine"})
    assert ("level", b"mine") in last(path).headers
    assert headers(last(path))["level"] == b"INFO"


@pytest.mark.parametrize(("extra", "expected"), [(False, set()), (["user"], {"user"})])
def test_extras_can_be_left_out_or_chosen(log, path, extra, expected):
    log.addHandler(JournalHandler(path, fields=[], extra=extra))
    log.info("x", extra={"user": "anna", "count": 3})
    assert set(headers(last(path))) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, None),
        ("level", b"INFO"),
        ("user", b"anna"),
        ("missing", None),
        (lambda record: record.user[0], b"a"),
    ],
)
def test_the_key_is_a_field_an_extra_or_what_a_function_makes(log, path, key, expected):
    log.addHandler(JournalHandler(path, key=key))
    log.info("x", extra={"user": "anna"})
    assert last(path).key == expected


def test_a_formatter_makes_the_value(handler, log, path):
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    log.error("no tea")
    assert last(path).value == b"ERROR: no tea"


def test_an_exception_is_in_the_value_and_named_in_a_header(handler, log, path):
    """The value has its traceback."""
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        log.exception("failed")
    first, *rest = last(path).value.decode().splitlines()
    assert first == "failed"
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "ZeroDivisionError: by nothing"
    assert headers(last(path))["exception"] == b"ZeroDivisionError"


def test_text_that_is_not_unicode_is_escaped(handler, path):
    handler.handle(logging.makeLogRecord({"msg": "caf\udce9", "where": "\udcff"}))
    assert last(path).value == b"caf\\udce9"
    assert headers(last(path))["where"] == b"\\udcff"


def test_the_level_is_the_handlers(log, path):
    log.addHandler(JournalHandler(path, "WARNING"))
    log.info("no")
    log.warning("yes")
    assert values(path) == [b"yes"]


def test_options_are_those_of_the_writer(log, path):
    log.addHandler(JournalHandler(path, **SMALL))
    assert jlog.Journal(path).options.segment_bytes == SMALL["segment_bytes"]


# --- Who calls it ------------------------------------------------------------------------------------------------


def test_many_threads_lose_nothing_and_each_keeps_its_order(handler, log, path):
    def work(name):
        for number in range(200):
            log.info("%d", number, extra={"worker": name})

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [(headers(record)["worker"], int(record.value)) for record in records(path)]
    for name in (b"a", b"b", b"c", b"d"):
        assert [number for worker, number in found if worker == name] == list(range(200))


def test_dict_config_makes_it(path):
    name = f"test.{uuid.uuid4().hex}"
    config = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"short": {"format": "%(levelname)s %(message)s"}},
        "handlers": {
            "journal": {
                "class": "jlog.logging.JournalHandler",
                "journal": str(path),
                "level": "INFO",
                "formatter": "short",
                "fields": ["logger"],
                "segment_bytes": 8192,
            }
        },
        "loggers": {name: {"handlers": ["journal"], "level": "DEBUG"}},
    }
    logging.config.dictConfig(config)
    logger = logging.getLogger(name)
    try:
        logger.debug("no")
        logger.info("yes")
    finally:
        logger.handlers[0].close()
        logger.handlers.clear()
    assert [(record.value, headers(record)) for record in records(path)] == [(b"INFO yes", {"logger": name.encode()})]


def test_a_queue_listener_writes_what_queue_handlers_took(log, path):
    waiting: queue.Queue[logging.LogRecord] = queue.Queue()
    handler = JournalHandler(path)
    listener = logging.handlers.QueueListener(waiting, handler)
    log.addHandler(logging.handlers.QueueHandler(waiting))
    listener.start()
    for number in range(100):
        log.info("%d", number, extra={"number": number})
    try:
        raise KeyError("gone")
    except KeyError:
        log.exception("last")
    listener.stop()
    handler.close()
    found = records(path)
    assert [(int(r.value), int(headers(r)["number"])) for r in found[:-1]] == [(n, n) for n in range(100)]
    assert b"KeyError: 'gone'" in found[-1].value


def test_an_open_writer_is_used_and_stays_the_callers(log, path):
    with jlog.Writer(path) as writer:
        handler = JournalHandler(writer)
        log.addHandler(handler)
        log.info("by the handler")
        handler.close()
        writer.append(b"by the caller")
    assert values(path) == [b"by the handler", b"by the caller"]


# --- Processes ---------------------------------------------------------------------------------------------------


def log_in_child(name, told):
    logging.getLogger(name).info("child")
    told.put(os.getpid())


@pytest.mark.parametrize("given", ["path", "writer"])
def test_after_a_fork_child_and_parent_go_on_logging(log, path, given):
    writer = jlog.Writer(path)
    handler = JournalHandler(path if given == "path" else writer)
    log.addHandler(handler)
    log.info("before")
    context = multiprocessing.get_context("fork")
    told = context.Queue()
    children = [context.Process(target=log_in_child, args=(log.name, told)) for _ in range(3)]
    for child in children:
        child.start()
        log.info("parent")
    pids = {told.get(timeout=HUNG_SECONDS) for _ in children}
    for child in children:
        child.join()
    log.info("after")
    writer.close()
    handler.close()
    found = [(record.value, int(headers(record)["process"])) for record in records(path)]
    assert [pid for value, pid in found if value != b"child"] == [os.getpid()] * 5
    assert {pid for value, pid in found if value == b"child"} == pids
    assert handler.dropped == 0


def test_a_fork_beside_a_logging_thread_leaves_logging_usable(handler, log, path):
    done = threading.Event()

    def keep_on():
        while not done.is_set():
            log.info("thread")

    thread = threading.Thread(target=keep_on)
    thread.start()
    try:
        for _ in range(30):
            pid = os.fork()
            if pid == 0:
                log.info("child")
                os._exit(handler.dropped)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        done.set()
        thread.join()
    assert values(path).count(b"child") == 30


PROGRAM = """
import json, logging, os, signal, sys, threading
from jlog import logging as jlog_logging
from jlog.logging import JournalHandler

path, options = sys.argv[1], json.loads(sys.argv[2])
logging.basicConfig(level="INFO", format="%(message)s", handlers=[JournalHandler(path, **options)])
"""


def run_program(path, code, **options):
    return python(PROGRAM + textwrap.dedent(code), path, json.dumps(options))


def test_at_the_interpreters_exit_the_journal_is_closed(path):
    """All records are in it."""
    done = run_program(
        path,
        """
        import atexit
        atexit.register(logging.info, "at exit")
        logging.info("running")
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert values(path) == [b"running", b"at exit"]
    (segment,) = path.glob("*.seg")
    assert segment.stat().st_size == jlog.Journal(path).size_bytes  # what was preallocated has been cut off


def test_records_logged_after_shutdown_are_dropped_silently(path):
    done = run_program(
        path,
        """
        logging.info("before")
        (handler,) = logging.getLogger().handlers
        logging.shutdown()
        logging.info("too late")
        assert handler.dropped == 1
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert values(path) == [b"before"]


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_logged_records_survive_a_process_that_ends_at_once(path, end):
    assert run_program(path, f"logging.info('last words'); {end}").returncode != 0
    assert values(path) == [b"last words"]


# --- What goes wrong ---------------------------------------------------------------------------------------------


def test_a_record_that_cannot_be_formatted_is_shown_on_stderr(handler, log, path, capsys):
    """The application goes on."""
    handler.handle(logging.makeLogRecord({"msg": "%d", "args": ("no number",)}))
    log.info("x", extra={"broken": type("Broken", (), {"__str__": lambda _: 1 / 0})()})
    told = capsys.readouterr().err
    assert "%d format: a real number is required" in told
    assert "ZeroDivisionError" in told
    log.info("on it goes")
    assert handler.dropped == 2
    assert [record.value for record in records(path)[1:]] == [b"on it goes"]


def test_a_path_that_cannot_be_a_journal_raises_at_once(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(jlog.JournalExists):
        JournalHandler(tmp_path / "file")
    with pytest.raises(ValueError, match="no field colour; it has level, logger"):
        JournalHandler(tmp_path / "j", fields=["colour"])
    with jlog.Writer(tmp_path / "j") as writer, pytest.raises(TypeError, match=r"give precommit to jlog\.Writer instead"):
        JournalHandler(writer, precommit=0)


@pytest.mark.usefixtures("failpoints", "retries_at_once")
def test_a_locked_journal_neither_blocks_nor_raises(log, path, spawn, capsys):
    """One record says afterwards how many were dropped."""
    holder = spawn()
    holder.call("open_writer", "w", str(path), {})
    handler = JournalHandler(path, lock_timeout=0.01)
    log.addHandler(handler)
    log.info("before")
    holder.call("arm", "append.encoded=stop@0")
    holder.start("append", "w")
    holder.is_stopped()
    for _ in range(3):
        log.info("lost")
    assert handler.dropped == 3
    assert "JournalLocked" in capsys.readouterr().err
    holder.continues()
    holder.result()
    log.info("after")
    log.info("and on")
    before, _, report, after, further = records(path)
    assert (before.value, after.value, further.value) == (b"before", b"after", b"and on")
    assert report.value.startswith(b"3 log records were dropped: ")
    assert b"lock_timeout" in report.value
    assert headers(report) == {"level": b"WARNING", "logger": b"jlog.logging", "dropped": b"3"}


@pytest.mark.usefixtures("failpoints")
def test_while_the_journal_is_locked_only_the_first_record_waits(log, path, spawn, capsys, monkeypatch):
    """It alone complains, too."""
    monkeypatch.setattr(jlog_logging, "RETRY_SECONDS", 3600.0)
    holder = spawn()
    holder.call("open_writer", "w", str(path), {})
    holder.call("arm", "append.encoded=stop@0")
    handler = JournalHandler(path, lock_timeout=0.01)
    log.addHandler(handler)
    holder.start("append", "w")
    holder.is_stopped()
    for _ in range(1000):
        log.info("lost")
    assert handler.dropped == 1000
    assert capsys.readouterr().err.count("--- Logging error ---") == 1
    holder.continues()
    holder.result()


@pytest.mark.usefixtures("retries_at_once")
def test_an_exclusively_held_journal_is_opened_when_it_is_free(log, path, spawn, capsys):
    owner = spawn()
    owner.call("open_writer", "w", str(path), {"exclusive": True})
    handler = JournalHandler(path)
    log.addHandler(handler)
    log.info("lost")
    owner.call("close", "w")
    log.info("there")
    assert [record.value for record in records(path)][1:] == [b"there"]
    assert handler.dropped == 1
    assert "JournalLocked" in capsys.readouterr().err


def test_a_full_disk_costs_records_and_not_the_application(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    code = f"""
        import io, logging
        from jlog import logging as jlog_logging

        jlog_logging.RETRY_SECONDS = 0.0
        path, ballast = {str(disk)!r} + "/j", {str(disk)!r} + "/ballast"
        handler = jlog_logging.JournalHandler(path, **SMALL)
        logging.basicConfig(level="INFO", format="%(message)s", handlers=[handler])
        logging.info("before")
        with open(ballast, "ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError as error:
                    assert error.errno == errno.ENOSPC
        sys.stderr = told = io.StringIO()
        for number in range(1000):
            logging.info("%d %s", number, "x" * 100)
        sys.stderr = sys.__stderr__
        assert handler.dropped > 900
        assert "No space left on device" in told.getvalue()
        os.unlink(ballast)
        logging.info("after")
        found = records(path)
        assert found[-1].value == b"after"
        assert b"log records were dropped: [Errno 28] No space left on device" in found[-2].value
        reported = sum(int(dict(record.headers).get("dropped", 0)) for record in found)
        stored = [int(record.value.split()[0]) for record in found if record.value.endswith(b"x")]
        assert reported == handler.dropped == 1000 - len(stored)
        assert stored == sorted(stored)
    """
    run_python(code, within=mounted_by(small_disk(disk, "600k")))


@pytest.mark.damage
def test_jlogs_own_messages_come_after_their_cause(path, capsys):
    """A sealed segment's index cannot be written: a directory has its name."""
    core = logging.getLogger("jlog")
    handler = JournalHandler(path, **SMALL)
    core.addHandler(handler)
    try:
        os.mkdir(path / f"{0:020d}.idx")
        numbers = count()
        while len(list(path.glob("*.seg"))) < 2:
            core.warning("%d %s", next(numbers), "x" * 200)
    finally:
        core.removeHandler(handler)
        handler.close()
    found = records(path)
    assert handler.dropped == 0
    own = [r.value for r in found if not r.value.endswith(b"x")]
    assert [value for value in own if b"left for later" in value]
    assert [int(r.value.split()[0]) for r in found if r.value.endswith(b"x")] == list(range(next(numbers)))
    assert found[-1].value == own[-1]
    assert capsys.readouterr().err == ""


FAILING_SYNC = """
(handler,) = logging.getLogger().handlers
jlog_logging.RETRY_SECONDS = 0.0
logging.raiseExceptions = False
logging.info("before")
os.environ["JLOG_FAILPOINTS"] = "file.sync=5@0"
while not handler.dropped:
    logging.info("until the sync in the background fails")
del os.environ["JLOG_FAILPOINTS"]
lost = 0
while lost != handler.dropped:
    lost = handler.dropped
    logging.info("after")
"""


@pytest.mark.usefixtures("failpoints")
def test_a_failed_sync_in_the_background_opens_the_journal_anew(path):
    """The program ends well, and logs how many records were dropped."""
    done = run_program(path, FAILING_SYNC, sync="interval", sync_interval=0.01)
    assert (done.returncode, done.stderr) == (0, "")
    found = values(path)
    assert found[0] == b"before"
    assert found[-1] == b"after"
    assert [value for value in found if re.match(rb"\d log records were dropped: .*" + os.strerror(errno.EIO).encode(), value)]


@pytest.mark.parametrize("ends", ["replaced", "descriptors closed"])
def test_a_journal_that_is_replaced_or_whose_descriptors_were_closed_is_opened_anew(path, ends):
    done = python(REPLACED, path, ends)
    assert (done.returncode, done.stdout) == (0, "again\n"), done.stderr


REPLACED = """
import logging, os, shutil, sys, time
import jlog
from jlog.logging import JournalHandler

path, ends = sys.argv[1:]
log = logging.getLogger("app")
log.addHandler(JournalHandler(path, precommit=4096, segment_bytes=4096))
logging.raiseExceptions = False
log.warning("before")
if ends == "replaced":
    shutil.rmtree(path)
    jlog.Journal.create(path)
else:
    os.closerange(3, 256)
for _ in range(100):
    log.warning("x" * 1000)  # a writer notices it when it writes to its files
until = time.monotonic() + 60
while b"again" not in list(jlog.Reader(path).values()) and time.monotonic() < until:
    log.warning("again")
    time.sleep(0.1)
print("again" if b"again" in list(jlog.Reader(path).values()) else "never")
"""


def test_jlogs_messages_in_another_thread_wait_for_no_lock(handler, path):
    """The thread that holds the lock may be closing the writer, and so waiting for that thread."""
    own = logging.makeLogRecord({"name": "jlog", "msg": "from a thread of jlog's"})
    handler.acquire()
    try:
        thread = threading.Thread(target=handler.handle, args=(own,))
        thread.start()
        thread.join()
        assert values(path) == []
    finally:
        handler.release()
    handler.handle(logging.makeLogRecord({"msg": "the next"}))
    assert values(path) == [b"the next", b"from a thread of jlog's"]


def test_waiting_records_are_appended_before_the_handler_closes(handler, path):
    own = logging.makeLogRecord({"name": "jlog", "msg": "waits"})
    handler.acquire()
    thread = threading.Thread(target=handler.handle, args=(own,))
    thread.start()
    thread.join()
    handler.release()
    handler.close()
    assert values(path) == [b"waits"]


def test_closed_it_drops_quietly(handler, log, path, capsys):
    log.info("before")
    handler.close()
    log.info("after")
    assert (handler.dropped, capsys.readouterr().err) == (1, "")
    assert values(path) == [b"before"]
