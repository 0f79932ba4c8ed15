// All workloads: filters are in the address, and only the rows in sight are drawn.
import { cell, element, heads, key, link, note, number, plainly, requests, since, status, titleOf, toQueue, toWorkload, words } from "/dom.js";
import { holds, inOrder, originals, severalClusters, state } from "/state.js";
import { STUCK } from "/reasons.js";

const ROW_PX = 60;
const BEYOND = 12; // Rows drawn above and below those in sight.
const STATUSES = ["PENDING", "QUOTARESERVED", "ADMITTED", "EVICTED", "FINISHED", "HOLDING"];
const HEADS = ["Workload", "Queue", "Status", "Why", "Asks", "#Priority", "#Age"];

const place = { search: "", top: 0, height: 900, first: 0 };
let chosen = { version: -1, search: null, rows: [] };

export function workloads(query) {
  const rows = matched(query);
  return [element("h2", { class: "only-read" }, "Workloads"), filters(query, rows.length), rows.length ? windowed(rows) : note("No workloads.")];
}

// Filtered and sorted once for each message, not for each row that is scrolled by.
function matched(query) {
  const search = query.toString();
  if (chosen.version !== state.version || chosen.search !== search) {
    chosen = { version: state.version, search, rows: among(query).filter(matching(query)).sort(inOrder) };
  }
  if (place.search !== search) Object.assign(place, { search, top: 0, anew: true });
  return chosen.rows;
}

const FIELDS = ["cluster", "namespace", "clusterQueue", "queue", "spoke"]; // Filters by the field of this name.

// Who asks for a cluster or the queue of a spoke asks for copies.
const among = (query) => (["cluster", "clusterQueue", "queue"].some((name) => query.get(name)) ? [...state.workloads.values()] : originals());

function matching(query) {
  const search = (query.get("search") || "").trim().toLowerCase();
  const fields = FIELDS.map((name) => [name, query.get(name)]).filter(([, value]) => value);
  const [wanted, stuck] = ["status", "stuck"].map((name) => query.get(name));
  return (row) => fields.every(([name, value]) => row[name] === value) && (!wanted || (wanted === "HOLDING" ? holds(row) : row.status === wanted))
    && (!stuck || STUCK.has(row.reason)) && (!search || haystack(row).includes(search));
}

function haystack(row) {
  return [row.name, row.namespace, row.job?.name, row.job?.kind, row.queue, row.clusterQueue, row.reason, row.message, row.spoke]
    .join(" ").toLowerCase();
}

const namesOf = (field) => [...new Set([...state.workloads.values(), ...state.queues.values()].map((row) => row[field]).filter(Boolean))].sort();

// What the address asks for is shown, also if there is none of it.
const withAsked = (values, asked) => (asked && !values.includes(asked) ? [...values, asked] : values);

function filters(query, shown) {
  const choice = (name, title, values, worded = (value) => value) => element("label", {}, title,
    element("select", { name, id: `filter-${name}` }, element("option", { value: "" }, "all"),
      withAsked(values, query.get(name)).map((value) => element("option", { value, selected: query.get(name) === value ? "" : null }, worded(value)))));
  // Where there is nothing to choose it takes no room.
  const choiceOf = (name, title, least = 2) => (namesOf(name).length >= least || query.get(name) ? choice(name, title, namesOf(name)) : null);
  const left = state.omitted ? `, ${state.omitted} older ones left out` : "";
  const form = element("form", { class: "filters", role: "search", id: "filters", "aria-label": "Workloads" },
    element("label", {}, "Search", element("input", { id: "search", name: "search", type: "search", placeholder: "name, job, reason",
      autocomplete: "off", value: query.get("search") })),
    choiceOf("cluster", "Cluster"), choice("namespace", "Namespace", namesOf("namespace")), choice("clusterQueue", "ClusterQueue", namesOf("clusterQueue")),
    choiceOf("queue", "LocalQueue"), choiceOf("spoke", "Spoke", 1),
    choice("status", "Status", STATUSES, words),
    element("label", { class: "check" }, element("input", { type: "checkbox", name: "stuck", id: "filter-stuck", value: "1",
      checked: query.get("stuck") ? "" : null }), " only what will not start by itself"),
    element("p", { id: "count", role: "status" }, `${shown} of ${among(query).length}${left}`));
  form.onsubmit = (event) => event.preventDefault();
  form.oninput = (event) => {
    const asked = new URLSearchParams([...new FormData(event.currentTarget)].filter(([, value]) => value));
    history.replaceState(null, "", `/workloads${asked.size ? `?${asked}` : ""}`);
    document.dispatchEvent(new Event("redraw"));
  };
  return form;
}

function windowed(rows) {
  const visible = Math.ceil(place.height / ROW_PX) + 2 * BEYOND;
  const first = Math.max(0, Math.min(Math.floor(place.top / ROW_PX) - BEYOND, rows.length - visible));
  const last = Math.min(rows.length, first + visible);
  place.first = first;
  const space = (at, height) => (height ? element("tr", { class: "space", "data-at": at, "aria-hidden": "true" },
    element("td", { height })) : null);
  const box = element("div", { class: "scroll tall", id: "table", tabindex: "0", role: "region", "aria-label": "Workloads, scrollable" },
    element("table", { "aria-rowcount": rows.length + 1 }, element("thead", {}, element("tr", { "aria-rowindex": 1 }, heads(HEADS))),
      element("tbody", { id: "rows" }, space("above", first * ROW_PX), rows.slice(first, last).map((row, index) => line(row, first + index + 2)),
        space("below", (rows.length - last) * ROW_PX))));
  box.onscroll = scrolled;
  if (place.anew || !document.getElementById("table")) requestAnimationFrame(back);
  place.anew = false;
  return box;
}

function scrolled(event) {
  Object.assign(place, { top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight });
  if (Math.abs(Math.floor(place.top / ROW_PX) - BEYOND - place.first) < BEYOND / 2) return;
  requestAnimationFrame(() => document.dispatchEvent(new Event("redraw")));
}

// Where the box was when it was left.
function back() {
  const box = document.getElementById("table");
  if (box && box.scrollTop !== place.top) box.scrollTop = place.top;
}

function line(row, index) {
  const where = severalClusters() ? `${row.cluster} / ${row.namespace}` : row.namespace;
  const kind = row.job ? `${row.job.kind} in ${where}` : `Workload in ${where}`;
  const clip = (text) => element("span", { class: "clip", title: text || null }, text || "");
  return element("tr", { "data-key": key(row), class: state.fresh.has(key(row)) ? "fresh" : null, "aria-rowindex": index },
    element("th", { scope: "row" }, link(toWorkload(row), titleOf(row), { class: "name clip" }), element("span", { class: "sub clip" }, kind)),
    cell(row.queue ? link(toQueue({ cluster: row.cluster, namespace: row.namespace, name: row.queue }), row.queue, { class: "clip" }) : "–",
      element("span", { class: "sub clip" }, row.clusterQueue ? `→ ${row.clusterQueue}` : "")),
    cell(status(row.status), row.spoke ? element("span", { class: "sub clip" }, `on ${row.spoke}`) : null),
    element("td", { class: "why" }, clip(row.reason), element("span", { class: "sub clip", title: row.message || null }, plainly(row.message))),
    cell(clip(requests(row))), number(row.priority), element("td", { class: "number" }, since(row.createdAt)));
}
