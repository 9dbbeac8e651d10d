"""The console's style and script."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fff; --line: #d0d4da; --soft: #f3f5f7; --text: #1f2328; --quiet: #57606a;
  --link: #0a5fb4; --on-link: #fff; --bad: #b42318; --ink: #2f6fc4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181d; --line: #3a424c; --soft: #20262d; --text: #dde3ea; --quiet: #a3adb8;
    --link: #7ab8ff; --on-link: #0b1a2b; --bad: #ff8d82; --ink: #6ea8f5;
  }
}
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 80rem; padding: 0.5rem 1rem 2rem; }
html { background: var(--page); color: var(--text); }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 1.8rem 0 0.5rem; }
a { color: var(--link); text-underline-offset: 0.15em; }
td a { text-decoration: none; }
td a:hover { text-decoration: underline; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 1px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: 0.3rem 0.6rem; text-align: left; vertical-align: top; }
th { font-weight: 600; font-size: 0.85rem; color: var(--quiet); white-space: nowrap; }
tbody tr:hover { background: var(--soft); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { overflow-wrap: anywhere; min-width: 9rem; }
td.value, pre, textarea { font: 13px/1.4 ui-monospace, monospace; }
td.value, pre { overflow-wrap: anywhere; white-space: pre-wrap; margin: 0; }
td.value { min-width: 6rem; }
form, nav, .curves { display: flex; flex-wrap: wrap; gap: 0.6rem; margin: 0.8rem 0; align-items: center; }
.curves { gap: 1.2rem; }
nav { border-bottom: 1px solid var(--line); margin-top: 0; gap: 0.25rem; }
nav a { padding: 0.5rem 0.7rem; margin-bottom: -1px; border-bottom: 3px solid transparent; text-decoration: none; }
nav a:hover { border-color: var(--line); }
nav [aria-current] { color: inherit; font-weight: 600; border-color: var(--link); }
input, button, textarea {
  font: inherit; padding: 0.35rem 0.6rem; max-width: 100%; box-sizing: border-box;
  color: inherit; background: var(--page); border: 1px solid var(--quiet); border-radius: 0.3rem;
}
::placeholder { color: var(--quiet); opacity: 1; }
button { color: var(--link); border-color: var(--link); font-weight: 600; cursor: pointer; }
button:hover, button[aria-pressed="true"] { color: var(--on-link); background: var(--link); }
textarea { width: 100%; min-height: 6rem; font: 14px/1.4 ui-monospace, monospace; }
figure { flex: 1 1 18rem; margin: 0; padding: 0.6rem 0.8rem; border: 1px solid var(--line); border-radius: 0.4rem; }
figcaption { display: flex; justify-content: space-between; gap: 1rem; }
figure svg { display: block; width: 100%; height: 7rem; margin: 0.3rem 0; background: var(--soft); }
figure path { stroke: var(--ink); stroke-width: 1.5px; fill: none; vector-effect: non-scaling-stroke; }
td svg { display: block; width: 8rem; height: 1.4rem; margin-left: auto; }
td path { stroke: var(--ink); stroke-width: 1.5px; fill: none; vector-effect: non-scaling-stroke; }
figure small { display: flex; justify-content: space-between; color: var(--quiet); }
.stale { opacity: 0.5; }
.bad { color: var(--bad); }
summary { cursor: pointer; }
@media (min-width: 40em) { td.time { white-space: nowrap; } }
@media (max-width: 40em) {
  #records thead { display: none; }
  #records tr { display: block; border-bottom: 1px solid var(--line); padding: 0.4rem 0; }
  #records td { display: inline-block; border: 0; padding: 0 0.6rem 0 0; }
  #records td.value { display: block; min-width: 0; }
  .cards thead { display: none; }
  .cards tr { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); padding: 0.5rem 0; }
  .cards tr { border-bottom: 1px solid var(--line); }
  .cards td { display: flex; justify-content: space-between; gap: 0.6rem; border: 0; padding: 0.1rem 0.3rem; }
  .cards td.name { grid-column: 1 / -1; font-weight: 600; }
  .cards td:empty { display: none; }
  .cards td.number::before { content: attr(data-is); color: var(--quiet); }
  td svg { width: 4.5rem; }
}
"""
SCRIPT = """
const button = document.getElementById("follow"), rows = document.querySelector("#records tbody");
const span = document.getElementById("span");
let source = null;
button?.addEventListener("click", () => {
  if (source) { source.close(); source = null; }
  else {
    source = new EventSource(button.dataset.url);
    source.onmessage = event => {
      const records = JSON.parse(event.data);
      for (const cells of records) {
        const row = rows.insertRow(0);
        cells.forEach((text, at) => {
          const cell = row.insertCell();
          cell.textContent = text;
          cell.className = at === 0 ? "number" : at === 1 ? "time" : "value";
        });
      }
      while (rows.rows.length > 500) rows.deleteRow(-1);
      if (records.length) {
        const newest = Number(records.at(-1)[0]).toLocaleString("en");
        span.textContent = `The newest records, as they come, up to sequence ${newest}.`;
      }
    };
  }
  button.setAttribute("aria-pressed", String(source !== null));
  button.textContent = source ? "Stop following" : "Follow";
});
const live = document.getElementById("live");
async function refresh() {
  try {
    const answer = document.hidden || live.contains(document.activeElement) ? null : await fetch(live.dataset.url);
    if (answer?.ok) live.innerHTML = await answer.text();
    live.classList.toggle("stale", answer !== null && !answer.ok);
  } catch { live.classList.add("stale"); }
  setTimeout(refresh, 2000);
}
if (live) setTimeout(refresh, 1000);
"""
