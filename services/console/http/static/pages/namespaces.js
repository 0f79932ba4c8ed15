// Mine: by namespace, what waits and why, in the words of its reason.
import { element, key, link, note, number, plainly, cell, section, shortened, since, status, table, titleOf, toNamespace, toQueue, toWorkload } from "/dom.js";
import { REASONS } from "/reasons.js";
import { count, inOrder, localQueues, onlyReserved, originals, state } from "/state.js";

const SHOWN_MAX = 100;
const TITLES = { PENDING: "Waiting", QUOTARESERVED: "Quota reserved", ADMITTED: "Running", EVICTED: "Evicted", FINISHED: "Finished" };
const TOLD = ["PENDING", "QUOTARESERVED", "EVICTED"]; // Their reasons say what they wait for.

export function namespaces() {
  const names = [...new Set([...state.workloads.values(), ...localQueues()].map((row) => row.namespace))].sort();
  if (!names.length) return [element("h2", {}, "Namespaces"), note("No namespaces that you may see.")];
  const rows = names.map((name) => {
    const mine = of(name);
    return element("tr", { "data-namespace": name }, element("th", { scope: "row" }, link(toNamespace(name), name)),
      ...Object.keys(TITLES).map((status) => number(count(mine, status))), cell(reasons(mine)));
  });
  return [element("h2", {}, "Namespaces"), table("Namespaces", ["Namespace", ...Object.values(TITLES).map((title) => `#${title}`), "Why they wait"], rows)];
}

export function namespace(name) {
  const mine = of(name).sort(inOrder);
  const queues = localQueues().filter((row) => row.namespace === name);
  if (!mine.length && !queues.length) {
    return [element("h2", {}, name), note("No queue and no workload of this namespace is known: there may be no such namespace, or you may not see it.")];
  }
  return [
    element("div", { class: "title" }, element("h2", {}, name), element("p", { class: "sub" }, "Namespace")),
    section("LocalQueues", queues.length ? table("LocalQueues", ["LocalQueue", "ClusterQueue", "#Waiting", "#Reserved", "#Admitted", "In use"], queues.map(queue))
      : note("No LocalQueue: work in this namespace cannot wait for quota.")),
    ...Object.entries(TITLES).map(([status, title]) => inStatus(name, mine.filter((row) => row.status === status), status, title)),
  ];
}

// Who waits is told also where nobody does.
function inStatus(namespace, rows, status, title) {
  if (!rows.length && status !== "PENDING") return null;
  return section(`${title}: ${rows.length}`, TOLD.includes(status) ? whatToDo(rows) : null, listed(rows, title), shortened(rows, SHOWN_MAX, { namespace, status }));
}

// For each reason once: what it means, and what its tenant can do.
function whatToDo(rows) {
  const counts = counted(rows).filter(([reason]) => REASONS[reason]);
  if (!counts.length) return null;
  return element("ul", { class: "doing" }, counts.map(([reason, times]) => element("li", { "data-at": reason },
    element("b", {}, `${times} × ${reason}: `), ...marked(`${REASONS[reason][0]} ${REASONS[reason][1]}`))));
}

// What stands between backticks is code.
const marked = (text) => text.split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part));

const of = (name) => originals().filter((row) => row.namespace === name);

function counted(rows) {
  const counts = new Map();
  for (const row of rows) {
    const reason = row.reason || "PendingEvaluation";
    counts.set(reason, (counts.get(reason) || 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1]);
}

const reasons = (rows) => counted(rows.filter((row) => ["PENDING", "QUOTARESERVED"].includes(row.status))).map(([reason, times]) => `${times} ${reason}`).join(", ") || "–";

function queue(row) {
  const used = row.flavors.flatMap((flavor) => flavor.resources.filter((resource) => resource.reserved !== "0")
    .map((resource) => `${resource.reserved} ${resource.name} in ${flavor.name}`));
  return element("tr", { "data-queue": key(row) }, element("th", { scope: "row" }, link(toQueue(row), row.name)),
    cell(row.clusterQueue ? link(toQueue({ cluster: row.cluster, name: row.clusterQueue }), row.clusterQueue) : "–",
      row.active === false ? element("span", { class: "problem" }, [row.reason, row.message].filter(Boolean).join(": ")) : null),
    number(row.pending), number(onlyReserved(row)), number(row.admitted), cell(used.join(", ") || "–"));
}

function listed(rows, label) {
  if (!rows.length) return note("None.");
  const shown = rows.slice(0, SHOWN_MAX).map((row) => element("tr", { "data-key": key(row) },
    element("th", { scope: "row" }, link(toWorkload(row), titleOf(row), { class: "name" })), cell(status(row.status)),
    element("td", { class: "why" }, plainly(row.message) || row.reason || ""), element("td", { class: "number" }, since(row.createdAt))));
  return table(label, ["Workload", "Status", "Why", "#Age"], shown);
}
