// How the search orders what it finds: first the page that a reader means by a word, and last the notes for builders.
const MEANT = {
  "web-service": "gunicorn uvicorn uwsgi flask django fastapi fork web service ingest",
  celery: "celery taskiq",
  "typed-records": "pydantic dataclass msgspec encrypt schema registry",
  "sharing-work": "queue worker job task retry share work",
  retention: "rotate delete keep expire remove old",
  "ship-a-log-file": "logrotate syslog ship log file",
  replay: "offset consumer group rewind replay since",
  durability: "fsync sync survive power loss",
  guarantees: "encryption limit",
  backup: "backup restore snapshot",
  install: "windows macos wheel pip",
  kafka: "kafka mirror",
  spark: "spark",
  pipeline: "parquet delta iceberg lake table",
  container: "docker podman kubernetes container",
  query: "duckdb polars pandas sql query",
  console: "browser console",
  statistics: "prometheus grafana metric monitor",
  comparisons: "redis rabbitmq nats sqlite lmdb",
};
const ASKED = (new URLSearchParams(window.location.search).get("q") ?? "").toLowerCase().split(/\s+/);

var Scorer = {
  score: ([page, , , , score]) => {
    const meant = (MEANT[page] ?? "").split(" ");
    const words = ASKED.filter(word => word && (meant.includes(word) || meant.includes(word.replace(/s$/, ""))));
    return score + 30 * words.length - (page.startsWith("decisions/") ? 4 : 0);
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
