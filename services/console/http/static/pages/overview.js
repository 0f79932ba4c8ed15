// Overview: what waits and runs, which alerts ring, what needs somebody, the tree of cohorts with their quota, and what changes now.
import { asking, element, inactive, key, link, note, section, toCohort, toQueue, toWorkload, titleOf, since } from "/dom.js";
import { asked, doubt } from "/asked.js";
import { balances, bar, isHeld, legend, placesOf, shareOf } from "/balance.js";
import { SPANS, again } from "/chart.js";
import { clusterQueues, count, latest, onlyReserved, originals, severalClusters } from "/state.js";
import { STUCK } from "/reasons.js";

const SHOWN_BARS = 3;
const SHOWN_STUCK = 5;
const SHOWN_CHANGES = 12;
const ALERTS = "/api/v1/alerts";
const ALERTS_MS = 10000;

export function overview() {
  const queues = clusterQueues();
  const busy = queues.filter(isBusy);
  const idle = queues.filter((row) => !isBusy(row));
  // Who sees no ClusterQueue may not ask which alerts ring.
  const firing = queues.length ? asked(ALERTS, ALERTS_MS) : {};
  const { answer, problem: why } = firing;
  if (answer && !answer.complete) again(ALERTS);
  const known = balances();
  const top = [element("h2", { class: "only-read" }, "Overview"), figures()];
  // What is below the alerts comes with them: else it would move while it is read.
  if (queues.length && !(known.ready && (why || answer?.complete))) return [...top, asking()];
  return [
    ...top,
    doubt("Which alerts ring", firing),
    answer ? alerts(answer) : null,
    attention(queues),
    element("div", { class: "beside" },
      section("ClusterQueues", known.doubt, queues.length ? legend() : note("No ClusterQueues that you may see."),
        tree(busy, known),
        idle.length ? element("details", { class: "idle-queues", id: "idle-queues" },
          element("summary", {}, `${idle.length} ${idle.length === 1 ? "queue is" : "queues are"} idle`), tree(idle, known)) : null),
      changes()),
  ];
}

// The newest first. Each takes one line, so that nothing moves when another comes.
function changes() {
  const lines = latest(SHOWN_CHANGES).map(({ row, at, what }) => element("li", { "data-key": `${key(row)} ${what} ${at}` },
    element("span", { class: "status", "data-of": OF[what] }, what), link(toWorkload(row), `${row.namespace}/${titleOf(row)}`, { class: "clip" }), since(at)));
  const spans = Object.entries(SPANS).flatMap(([span, title], at) => [at ? ", " : "", link(`/history?span=${span}`, title)]);
  return section("What changes now", lines.length ? element("ol", { class: "changes" }, lines) : note("Nothing has changed."),
    element("p", { class: "sub" }, "Before that: ", spans, "."));
}

const OF = { came: "PENDING", admitted: "ADMITTED", evicted: "EVICTED", succeeded: "FINISHED", failed: "EVICTED", ended: "FINISHED" };

const isBusy = (row) => Boolean(row.pending || row.reserving || row.admitted || row.active === false);

function figures() {
  const rows = originals();
  const waiting = rows.filter((row) => row.status === "PENDING");
  const oldest = waiting.reduce((found, row) => (!found || row.createdAt < found.createdAt ? row : found), null);
  const figure = (title, value, to, more) => element("li", {},
    element("a", { href: to }, element("strong", {}, String(value)), element("span", {}, title)), more || null);
  return element("ul", { class: "figures", "aria-label": "Now" },
    figure("waiting", waiting.length, "/workloads?status=PENDING",
      oldest ? element("small", {}, "the oldest for ", since(oldest.createdAt)) : null),
    figure("quota reserved", count(rows, "QUOTARESERVED"), "/workloads?status=QUOTARESERVED"),
    figure("running", count(rows, "ADMITTED"), "/workloads?status=ADMITTED"),
    figure("evicted", count(rows, "EVICTED"), "/workloads?status=EVICTED"),
    figure("finished", count(rows, "FINISHED"), "/workloads?status=FINISHED"));
}

const FROM = { prometheus: "So says Prometheus.", streams: "Judged by the streams alone; the other alerts need a Prometheus (SLUICE_CONSOLE_PROMETHEUS_URL)." };

function alerts({ items, source, problem: why }) {
  const line = (each, at) => element("li", { "data-at": `${each.name}-${at}`, "data-severity": each.severity },
    element("strong", {}, each.severity), " ", each.summary, each.since ? [", for ", since(each.since)] : null, ". ",
    each.runbook.startsWith("http") ? link(each.runbook, `What to do: ${each.name}`) : element("span", { class: "sub" }, `What to do: ${each.runbook}`));
  const from = element("p", { class: "sub" }, items.length || why ? "" : "No alert rings. ", FROM[source], why ? ` ${why}.` : "");
  return items.length ? section(`Alerts: ${items.length}`, element("ul", { class: "alerts" }, items.map(line)), from) : from;
}

function attention(queues) {
  const closed = queues.filter((row) => row.active === false).map((row) => element("li", {},
    link(toQueue(row), row.name), ` is inactive. ${inactive(row)}`));
  const stuck = originals().filter((row) => row.status === "PENDING" && STUCK.has(row.reason));
  const shown = stuck.slice(0, SHOWN_STUCK).map((row) => element("li", {},
    link(toWorkload(row), `${row.namespace}/${titleOf(row)}`), ` will not start by itself. ${row.reason}: ${row.message || ""}`));
  if (stuck.length > shown.length) {
    shown.push(element("li", {}, link("/workloads?status=PENDING&stuck=1", `${stuck.length - shown.length} more`), " will not start by themselves."));
  }
  if (!closed.length && !stuck.length) return null;
  return section("Needs attention", element("ul", { class: "attention" }, closed, shown));
}

// --- the tree of cohorts ---------------------------------------------------------------------------

function tree(rows, known) {
  const clusters = [...new Set(rows.map((row) => row.cluster))];
  return clusters.map((cluster) => [
    severalClusters() ? element("h3", {}, `Cluster ${cluster}`) : null,
    branch(rows.filter((row) => row.cluster === cluster).map((row) => ({ row, above: [...(row.cohorts || [])].reverse() })), known),
  ]).flat();
}

function branch(leaves, known) {
  const here = leaves.filter((leaf) => !leaf.above.length).map((leaf) => leaf.row);
  const below = new Map();
  for (const leaf of leaves.filter((each) => each.above.length)) {
    const [cohort, ...rest] = leaf.above;
    below.set(cohort, [...(below.get(cohort) || []), { row: leaf.row, above: rest }]);
  }
  const node = (cluster, cohort) => element("div", { class: "node", "data-cohort": cohort },
    element("h3", {}, "Cohort ", link(toCohort({ cluster, name: cohort }), cohort)),
    element("div", { class: "bars" }, fullest(known.of("Cohort", cluster, cohort) || [], toCohort({ cluster, name: cohort }))));
  return element("ul", { class: "tree" },
    [...below].map(([cohort, found]) => element("li", { class: "cohort" }, node(found[0].row.cluster, cohort), branch(found, known))),
    here.sort((a, b) => (b.pending || 0) - (a.pending || 0) || a.name.localeCompare(b.name)).map((row) => leaf(row, known)));
}

function leaf(row, known) {
  const counts = element("dl", { class: "counts" });
  for (const [title, value] of [["waiting", row.pending], ["reserved", onlyReserved(row)], ["admitted", row.admitted]]) {
    counts.append(element("div", {}, element("dt", {}, title), element("dd", {}, String(value ?? "–"))));
  }
  return element("li", { class: "node", "data-queue": key(row) },
    element("h3", {}, link(toQueue(row), row.name), row.active === false ? element("span", { class: "tag bad" }, row.reason || "inactive") : null),
    counts, element("div", { class: "bars" }, fullest(placesOf(row, known), toQueue(row))));
}

// The fullest resources: nobody can read eighteen bars from afar. All of them are on the page of the queue or cohort.
function fullest(all, to) {
  const held = all.filter(isHeld);
  const shown = (held.length ? held : all).toSorted((a, b) => shareOf(b) - shareOf(a)).slice(0, SHOWN_BARS);
  const bars = shown.map((place) => bar(`${place.resource} in ${place.flavor}`, place));
  const more = held.length - shown.length;
  return more > 0 ? [...bars, element("p", { class: "sub" }, link(to, `${more} more in use`))] : bars;
}
