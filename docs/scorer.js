// How the search orders what it finds: first the page that a reader means by some words, and last the notes for builders.
// conf.py puts the words of a page into the index, so that a page is also found by those that its text does not have.
const MEANT = {
  "web-service": "gunicorn, uvicorn, uwsgi, flask, django, fastapi, fork, web service, ingest",
  celery: "celery, taskiq",
  "typed-records": "pydantic, dataclass, msgspec, encrypt, schema registry",
  following: "pubsub, pub sub, publish subscribe, publish, subscribe, asyncio, tail f, wait, notify",
  "sharing-work": "queue, message queue, job, worker, task, retry, dead letter, acknowledge, multiprocessing, share work",
  once: "deduplicate, deduplication, idempotent, idempotency, duplicate",
  retention: "rotate, delete, keep, expire, ttl, remove, old, backpressure, back pressure, limit_bytes",
  "ship-a-log-file": "logrotate, syslog, log file",
  replay: "offset, consumer group, rewind, replay, since",
  durability: "fsync, sync, survive, power loss",
  guarantees: "encryption, limit, at least once, exactly once, at most once, delivery",
  backup: "backup, restore, snapshot",
  archive: "s3, archive",
  install: "windows, macos, wheel, pip",
  kafka: "kafka, mirror",
  spark: "spark",
  pipeline: "parquet, delta, iceberg, lake, table",
  container: "docker, podman, kubernetes, container",
  query: "duckdb, polars, pandas, sql, query",
  console: "browser, console",
  statistics: "prometheus, grafana, metric, monitor",
  comparisons: "redis, rabbitmq, nats, sqlite, lmdb, why",
  "how-it-works": "wal, write ahead log, architecture, internals",
  "when-something-is-wrong": "error, troubleshooting, disk full",
};
const ASKED = new Set(
  (new URLSearchParams(window.location.search).get("q") ?? "")
    .toLowerCase()
    .split(/[\s/-]+/)
    .flatMap(word => [word, word.replace(/s$/, "")]),
);

var Scorer = {
  score: ([page, , , , score]) => {
    const phrases = (MEANT[page] ?? "").split(", ").map(phrase => phrase.split(" "));
    const words = new Set(phrases.filter(phrase => phrase.every(word => ASKED.has(word))).flat());
    return score + 30 * words.size - (page.startsWith("decisions/") ? 4 : 0);
  },
  // These are Sphinx's own.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
