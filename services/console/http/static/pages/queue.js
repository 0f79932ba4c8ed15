// A ClusterQueue or a LocalQueue: its quota, who waits in it in order, and who runs.
import { age, amount, asking, cell, element, inactive, key, link, note, number, plainly, problem, section, shortened, since, status, table, titleOf, toCohort, toFlavor, toQueue, toWorkload } from "/dom.js";
import { filteredBy, holds, inCluster, inOrder, localQueues, onlyReserved, state } from "/state.js";
import { asked, doubt } from "/asked.js";
import { balances, bar, flows, legend, placesOf, treeOf } from "/balance.js";
import { choice, spanOf } from "/chart.js";
import { used } from "/pages/use.js";
import { HOPELESS, NEVER } from "/reasons.js";

const SHOWN_MAX = 200;
const STARTS_MS = 30000;
const LATE_MS = 60000;
const VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2";

export function clusterQueue(query, cluster, name) {
  return queuePage(query, { cluster, name }, `${VISIBILITY}/clusterqueues/${encodeURIComponent(name)}`, (row) =>
    row.cluster === cluster && row.clusterQueue === name, "positionInClusterQueue", { cluster, clusterQueue: name });
}

export function localQueue(query, cluster, namespace, name) {
  return queuePage(query, { cluster, namespace, name },
    `${VISIBILITY}/namespaces/${encodeURIComponent(namespace)}/localqueues/${encodeURIComponent(name)}`,
    (row) => row.cluster === cluster && row.namespace === namespace && row.queue === name, "positionInLocalQueue", { cluster, namespace, queue: name });
}

// `filters`: those of the list of workloads that show what `isMine` is true of.
function queuePage(query, ident, path, isMine, position, filters) {
  const row = state.queues.get(key(ident));
  const known = balances();
  if (!row) return [element("h2", {}, ident.name), note("There is no such queue, or you may not see it.")];
  const order = asked(`${path}/pendingworkloads?limit=${SHOWN_MAX}&cluster=${encodeURIComponent(ident.cluster)}`);
  const positions = new Map(order.answer?.items.map(({ metadata, ...item }) => [key({ cluster: ident.cluster, ...metadata }), item[position] + 1]));
  const mine = [...state.workloads.values()].filter(isMine);
  const waiting = mine.filter((each) => each.status === "PENDING").sort(byPosition(positions));
  const starts = waiting.length && (row.clusterQueue || !row.namespace) ? foreseen(ident.cluster, row.namespace ? row.clusterQueue : row.name) : null;
  const holding = mine.filter(holds).sort(inOrder);
  const rest = (rows, of) => shortened(rows, SHOWN_MAX, filteredBy({ ...filters, status: of }));
  return [
    heading(row),
    row.active === false ? problem(`Inactive. ${inactive(row)}`) : null,
    // What is below comes with what is above it: else it would move while it is read.
    ...(!known.ready ? [asking()] : [row.namespace ? null : known.doubt, quota(row, known), row.namespace ? null : entrances(row)]),
    ...(!known.ready ? [] : waiting.length && !(order.answer || order.problem) ? [section(`Waiting: ${waiting.length}`, asking())] : [
      section(`Waiting: ${waiting.length}`, doubt("The order", order), starts?.doubt, listed(waiting, "Waiting", starts, positions), rest(waiting, "PENDING"),
        starts?.because ? note(`Expected starts are not known: ${starts.because}.`) : null),
      section(`Holding quota: ${holding.length}`, listed(holding, "Holding quota", null), rest(holding, "HOLDING")),
      row.namespace ? null : section("Quota in use over time", choice(toQueue(row), spanOf(query)), ...used(row, spanOf(query))),
      row.namespace ? null : configuration(row),
    ]),
  ];
}

function heading(row) {
  const above = row.namespace
    ? [link(toQueue({ cluster: row.cluster, name: row.clusterQueue }), `ClusterQueue ${row.clusterQueue}`)]
    : (row.cohorts || []).map((cohort) => link(toCohort({ cluster: row.cluster, name: cohort }), `cohort ${cohort}`));
  return element("div", { class: "title" },
    element("h2", {}, row.name),
    element("p", { class: "sub" }, row.namespace ? `LocalQueue in ${row.namespace} → ` : "ClusterQueue ", ...above.flatMap((each, at) => (at ? [" → ", each] : [each])),
      inCluster(row)));
}

// A card for each flavor; of a ClusterQueue also who borrows from whom.
function quota(row, known) {
  const places = placesOf(row, known);
  if (!places.length) return null;
  const flavors = [...new Set(places.map((each) => each.flavor))];
  const card = (name) => element("div", { class: "card" }, element("h3", {}, link(toFlavor({ cluster: row.cluster, name }), name)),
    places.filter((each) => each.flavor === name).map((each) => [bar(each.resource, each), moved(each) ? flows(treeOf(row), name, each.resource, known) : null]));
  return section(row.namespace ? "In use" : "Quota", row.namespace ? null : legend(), element("div", { class: "flavors" }, flavors.map(card)));
}

const moved = (place) => amount(place.borrowed) > 0 || amount(place.lent) > 0;

// With what surprises people about it; why it is inactive stands above.
function configuration(row) {
  const lines = Object.entries(row.configuration).flatMap(([what, value]) => [element("dt", {}, what), element("dd", {}, value)]);
  return section("Configuration", row.advice.length ? element("ul", { class: "attention" }, row.advice.map((each) => element("li", {}, each))) : null,
    element("dl", { class: "facts settings" }, lines));
}

function entrances(row) {
  const rows = localQueues().filter((each) => each.cluster === row.cluster && each.clusterQueue === row.name);
  if (!rows.length) return null;
  return section("LocalQueues", table("LocalQueues", ["LocalQueue", "Namespace", "#Waiting", "#Reserved", "#Admitted"], rows.map((each) =>
    element("tr", { "data-queue": key(each) }, element("th", { scope: "row" }, link(toQueue(each), each.name)), cell(each.namespace),
      number(each.pending), number(onlyReserved(each)), number(each.admitted)))));
}

function listed(rows, label, starts, positions) {
  if (!rows.length) return note("None.");
  const heads = [...(starts ? ["#Position"] : []), "Workload", "Status", "Why", "#Priority", "#Age", ...(starts ? ["#Expected start"] : [])];
  const shown = rows.slice(0, SHOWN_MAX).map((row) => element("tr", { "data-key": key(row) },
    starts ? number(positions.get(key(row))) : null,
    element("th", { scope: "row" }, link(toWorkload(row), titleOf(row), { class: "name" }), element("span", { class: "sub" }, row.namespace)),
    cell(status(row.status)), element("td", { class: "why" }, row.reason || "", element("span", { class: "sub" }, plainly(row.message))),
    number(row.priority), element("td", { class: "number" }, since(row.createdAt)),
    starts ? start(row, starts.of.get(key(row))) : null));
  return table(label, heads, shown);
}

// One forecast for the whole queue, by the console: it is asked again as seldom as it is played anew.
function foreseen(cluster, name) {
  const said = asked(`/api/v1/clusterqueues/${encodeURIComponent(name)}/starts?cluster=${encodeURIComponent(cluster)}`, STARTS_MS);
  const { answer } = said;
  return { doubt: doubt("When the first of them start", said), because: answer?.unknownBecause, of: new Map((answer?.items || []).map((each) => [key({ cluster, ...each }), each])) };
}

const from = (at) => age(new Date().toISOString(), Date.parse(at));

function start(row, each) {
  if (HOPELESS.has(row.reason)) return element("td", { class: "number start", title: NEVER }, "never");
  if (!each) return element("td", { class: "number start" }, "–");
  // An earliest start that is near says nothing: it waits now.
  if (!each.expectedStart) return element("td", { class: "number start", title: "the forecast found no start" }, Date.parse(each.expectedEarliest) - Date.now() > LATE_MS ? `after ${from(each.expectedEarliest)}` : "unknown");
  const range = `80 %: in ${from(each.expectedEarliest)} to ${each.expectedLatest ? from(each.expectedLatest) : "any time"}`;
  return element("td", { class: "number start", title: range }, `in ${from(each.expectedStart)}`);
}

const LAST = Number.MAX_SAFE_INTEGER; // The difference of two infinities is no number.

const byPosition = (positions) => (a, b) => (positions.get(key(a)) ?? LAST) - (positions.get(key(b)) ?? LAST) || inOrder(a, b);
