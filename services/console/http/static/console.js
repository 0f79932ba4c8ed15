// The page: follows /api/v1/events, shows what it says, and asks why when somebody wants to know.
// Nothing is written anywhere; the token stays in this tab's session.
"use strict";

const TOKEN = "sluicegate.token";
const ONLY = "sluicegate.namespace";
const SHOWN_MAX = 500;
const AGAIN_FIRST_MS = 1000;
const AGAIN_MAX_MS = 30000;
const REFUSED = new Set([400, 401, 403]); // To ask again would not help.

const byId = (id) => document.getElementById(id);
const state = { queues: new Map(), workloads: new Map(), omitted: 0, fresh: new Set(), asked: null, again: AGAIN_FIRST_MS };
let connection = null;
let drawing = 0;

const key = (row) => [row.cluster, row.namespace || "", row.name].join("/");

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) made.setAttribute(attribute, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// --- speaking to the console -----------------------------------------------------------------------

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function problemOf(response) {
  try {
    return (await response.json()).message || response.statusText;
  } catch {
    return response.statusText || `status ${response.status}`;
  }
}

async function follow() {
  if (connection) connection.abort();
  const mine = connection = new AbortController();
  say("connecting", "connecting…");
  try {
    const only = sessionStorage.getItem(ONLY);
    const query = only ? `?namespace=${encodeURIComponent(only)}` : "";
    const response = await fetch(`/api/v1/events${query}`, { headers: headers(), signal: mine.signal });
    if (REFUSED.has(response.status)) {
      signIn(sessionStorage.getItem(TOKEN) ? await problemOf(response) : "");
      return;
    }
    if (!response.ok) throw new Error(await problemOf(response));
    signedIn(true);
    state.again = AGAIN_FIRST_MS;
    say("live", "live");
    await readEvents(response.body.getReader());
    throw new Error("the connection ended");
  } catch (error) {
    if (mine.signal.aborted) return;
    const seconds = Math.round(state.again / 1000);
    say("lost", `${error.message}; again in ${seconds} s`);
    setTimeout(() => { if (connection === mine) follow(); }, state.again);
    state.again = Math.min(AGAIN_MAX_MS, state.again * 2);
  }
}

async function readEvents(reader) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      take(text.slice(0, end));
      text = text.slice(end + 2);
    }
  }
}

function take(block) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  if (!data.length) return;
  const told = JSON.parse(data.join("\n"));
  if (name === "end") {
    if (!REFUSED.has(told.code)) throw new Error(told.message);
    connection.abort();
    signIn(told.message);
    return;
  }
  if (name === "snapshot") {
    state.queues.clear();
    state.workloads.clear();
    state.omitted = told.omitted || 0;
  }
  for (const row of told.queues) state.queues.set(key(row), row);
  for (const row of told.workloads) {
    state.workloads.set(key(row), row);
    if (name === "change") state.fresh.add(key(row));
  }
  for (const gone of told.gone || []) {
    (gone.what === "queue" ? state.queues : state.workloads).delete(key(gone));
  }
  draw();
  if (byId("why").open && told.workloads.some((row) => key(row) === state.asked)) {
    showWhy(state.workloads.get(state.asked), false);
  }
}

function say(how, text) {
  const shown = byId("connection");
  shown.dataset.state = how;
  shown.textContent = text;
}

function signIn(why) {
  say("lost", "not signed in");
  byId("signin-why").textContent = why;
  byId("signin-why").hidden = !why;
  signedIn(false);
  state.queues.clear();
  state.workloads.clear();
  byId("why").close();
  draw();
  byId("token").focus();
}

function signedIn(yes) {
  byId("signin").hidden = yes;
  byId("sign").hidden = !yes || !sessionStorage.getItem(TOKEN);
  byId("totals").hidden = !yes;
  for (const section of document.querySelectorAll("[data-for='signed-in']")) section.hidden = !yes;
}

// --- drawing ---------------------------------------------------------------------------------------

function draw() {
  cancelAnimationFrame(drawing);
  drawing = requestAnimationFrame(() => {
    drawTotals();
    drawQueues();
    drawNamespaces();
    drawWorkloads();
  });
}

function drawTotals() {
  const of = (status) => [...state.workloads.values()].filter((row) => row.status === status).length;
  byId("totals").textContent = `${of("PENDING")} pending · ${of("ADMITTED")} admitted`;
}

function drawQueues() {
  const rows = [...state.queues.values()].sort((a, b) => key(a).localeCompare(key(b)));
  const locals = rows.filter((row) => row.namespace);
  byId("queues").replaceChildren(...rows.filter((row) => !row.namespace).map(card));
  byId("local-rows").replaceChildren(...locals.map(localQueue));
  byId("local").hidden = locals.length === 0;
  byId("no-queues").hidden = rows.length > 0;
}

function card(row) {
  const of = ["ClusterQueue", row.cohort ? `cohort ${row.cohort}` : null, clusters() > 1 ? row.cluster : null];
  const counts = element("dl", { class: "counts" });
  for (const [title, value] of [["pending", row.pending], ["reserving", row.reserving], ["admitted", row.admitted]]) {
    counts.append(element("div", {}, element("dt", {}, title), element("dd", {}, value ?? "–")));
  }
  const made = element("li", { class: "card", "data-queue": key(row) },
    element("h3", {}, row.name), element("p", { class: "of" }, of.filter(Boolean).join(" · ")), counts);
  for (const flavor of row.flavors) {
    for (const resource of flavor.resources) made.append(use(flavor, resource));
  }
  if (row.active === false) made.append(idle(row));
  return made;
}

function localQueue(row) {
  const where = clusters() > 1 ? `${row.cluster} / ${row.namespace}` : row.namespace;
  const number = (value) => element("td", { class: "number" }, String(value ?? "–"));
  const used = row.flavors.flatMap((flavor) => flavor.resources.filter((resource) => resource.reserved !== "0")
    .map((resource) => `${resource.reserved} ${resource.name} in ${flavor.name}`));
  return element("tr", { "data-queue": key(row) },
    element("th", { scope: "row" }, row.name, element("span", { class: "sub" }, `in ${where}`)),
    element("td", {}, row.clusterQueue || "–", row.active === false ? idle(row) : null),
    number(row.pending), number(row.reserving), number(row.admitted),
    element("td", {}, used.join(", ") || "–"));
}

const idle = (row) => element("p", { class: "idle" }, [row.reason, row.message].filter(Boolean).join(": "));

function use(flavor, resource) {
  const text = resource.nominal === undefined ? resource.reserved : `${resource.reserved} of ${resource.nominal}`;
  const borrowed = resource.borrowed !== "0" ? `, ${resource.borrowed} borrowed` : "";
  const label = `${resource.name} in ${flavor.name}`;
  const made = element("div", { class: "use" },
    element("span", {}, element("b", {}, label), element("span", {}, text + borrowed)));
  if (resource.share !== undefined) {
    made.append(element("meter", {
      min: 0, max: 1.0001, low: 0.9, high: 1, optimum: 0.5, value: Math.min(1.0001, resource.share),
      "aria-label": `${label}: ${text}${borrowed}`,
    }));
  }
  return made;
}

function clusters() {
  return new Set([...state.queues.values(), ...state.workloads.values()].map((row) => row.cluster)).size;
}

function drawNamespaces() {
  const names = [...new Set([...state.workloads.values(), ...state.queues.values()]
    .map((row) => row.namespace).filter(Boolean))].sort();
  const select = byId("namespace");
  const known = [...select.options].slice(1).map((option) => option.value);
  if (known.join() === names.join()) return;
  const chosen = select.value;
  select.replaceChildren(element("option", { value: "" }, "all"),
    ...names.map((name) => element("option", { value: name }, name)));
  select.value = names.includes(chosen) ? chosen : "";
}

const RANK = { PENDING: 0, EVICTED: 1, QUOTARESERVED: 2, ADMITTED: 3, FINISHED: 4 };

function drawWorkloads() {
  const search = byId("search").value.trim().toLowerCase();
  const namespace = byId("namespace").value;
  const status = byId("status").value;
  const found = [...state.workloads.values()].filter((row) =>
    (!namespace || row.namespace === namespace) && (!status || row.status === status)
    && (!search || haystack(row).includes(search)));
  found.sort((a, b) => RANK[a.status] - RANK[b.status] || b.priority - a.priority
    || a.createdAt.localeCompare(b.createdAt) || key(a).localeCompare(key(b)));
  const body = byId("rows");
  const focused = document.activeElement?.closest?.("tr")?.dataset.key;
  body.replaceChildren(...found.slice(0, SHOWN_MAX).map(workload));
  if (focused) body.querySelector(`tr[data-key="${CSS.escape(focused)}"] .name`)?.focus();
  state.fresh.clear();
  byId("no-rows").hidden = found.length > 0;
  const more = found.length > SHOWN_MAX ? `, the first ${SHOWN_MAX} shown` : "";
  const left = state.omitted ? `, ${state.omitted} older ones left out` : "";
  byId("count").textContent = `${found.length} of ${state.workloads.size}${more}${left}`;
}

function haystack(row) {
  return [row.name, row.namespace, row.job?.name, row.job?.kind, row.queue, row.clusterQueue, row.reason, row.message]
    .join(" ").toLowerCase();
}

function workload(row) {
  const open = element("button", { type: "button", class: "name", "aria-haspopup": "dialog" },
    row.job ? row.job.name : row.name);
  open.addEventListener("click", () => explain(row));
  const where = clusters() > 1 ? `${row.cluster} / ${row.namespace}` : row.namespace;
  const kind = row.job ? `${row.job.kind} in ${where}` : `Workload in ${where}`;
  const asks = Object.entries(row.asks).map(([name, amount]) => `${amount} ${name}`).join(", ");
  return element("tr", { "data-key": key(row), class: state.fresh.has(key(row)) ? "fresh" : null },
    element("th", { scope: "row" }, open, element("span", { class: "sub" }, kind)),
    element("td", {}, row.queue || "–", element("span", { class: "sub" }, row.clusterQueue ? `→ ${row.clusterQueue}` : "")),
    element("td", {}, element("span", { class: "status", "data-of": row.status }, words(row.status))),
    element("td", { class: "why" }, row.reason || "", element("span", { class: "sub" }, row.message || "")),
    element("td", {}, asks || "–"),
    element("td", { class: "number" }, String(row.priority)),
    element("td", { class: "number" }, element("time", { datetime: row.createdAt }, age(row.createdAt))));
}

const words = (status) => ({ QUOTARESERVED: "quota reserved" })[status] || status.toLowerCase();

function age(from, to = Date.now()) {
  const seconds = Math.max(0, Math.round((to - Date.parse(from)) / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

// --- why -------------------------------------------------------------------------------------------

async function explain(row) {
  state.asked = key(row);
  byId("why-title").textContent = `${row.namespace}/${row.job ? row.job.name : row.name}`;
  byId("why-body").replaceChildren(element("p", {}, "asking…"));
  const dialog = byId("why");
  if (!dialog.open) dialog.showModal();
  if (await showWhy(row, false)) await showWhy(row, true);
}

// The answer is shown if by then nobody asks for another.
async function showWhy(row, forecast) {
  const body = byId("why-body");
  const path = `/api/v1/namespaces/${encodeURIComponent(row.namespace)}/workloads/${encodeURIComponent(row.name)}/explain`;
  const query = `?cluster=${encodeURIComponent(row.cluster)}${forecast ? "&forecast=true" : ""}`;
  let shown;
  try {
    const response = await fetch(path + query, { headers: headers() });
    if (!response.ok) throw new Error(await problemOf(response));
    shown = (await response.json()).items.map((item) => told(item, forecast));
  } catch (error) {
    shown = [element("p", { class: "idle" }, error.message)];
  }
  if (state.asked !== key(row)) return false;
  body.replaceChildren(...shown);
  return true;
}

function told(item, foretold) {
  const list = element("dl", { class: "told" });
  const line = (title, text) => {
    if (text) list.append(element("dt", {}, title), element("dd", {}, text));
  };
  line("Reason", item.reason);
  line("Message", item.message);
  line("Job", item.job);
  line("Queue", `${item.queue || "none"}${item.cluster_queue ? ` → ${item.cluster_queue}` : ""}, priority ${item.priority}`);
  line("Created", `${item.created_at} (${age(item.created_at)} ago)`);
  if (item.position) {
    line("Position", `${item.position} in ClusterQueue ${item.cluster_queue}`);
    line("Ahead", ahead(item));
  }
  for (const shortage of item.shortages || []) {
    line("Lacks", `${shortage.resource} in flavor ${shortage.flavor}: asked ${shortage.asked}, free ${shortage.free}`
      + ` (of which borrowable ${shortage.borrowable}), at most ${shortage.most}${shortage.limit ? `; ${shortage.limit}` : ""}`);
    line("Held by", held(shortage));
  }
  if (item.victims?.length || item.victims_elsewhere) line("Preempts", others(item.victims, item.victims_elsewhere));
  if (item.unready?.length || item.unready_elsewhere) line("Not ready", others(item.unready, item.unready_elsewhere));
  line("Fair shares", Object.entries(item.fair_shares || {}).map(([whose, share]) => `${whose} ${share}`).join(", "));
  for (const [check, how] of Object.entries(item.checks || {})) {
    const said = item.check_messages?.[check];
    line("Check", `${check} is ${how}${said ? `: ${said}` : ""}`);
  }
  line("Not before", item.requeue_at);
  line("What would help", item.remedy);
  line("Expected start", foretold ? expected(item) : item.expected_start_unknown_because ? "being worked out…" : "");
  return list;
}

function others(names, elsewhere) {
  const parts = [...(names || [])];
  if (elsewhere) parts.push(`${elsewhere} of other namespaces`);
  return parts.join(", ");
}

function ahead(item) {
  const names = [...(item.ahead || [])];
  if (item.ahead_here > names.length) names.push(`${item.ahead_here - names.length} more here`);
  return others(names, item.ahead_elsewhere) || "nobody";
}

function held(shortage) {
  const parts = (shortage.holders || []).map((holder) => `${holder.namespace ? `${holder.namespace}/` : ""}${holder.name}`
    + ` (${holder.amount}${holder.cluster_queue ? ` of ClusterQueue ${holder.cluster_queue}` : ""})`);
  if (shortage.holders_elsewhere) parts.push(`${shortage.holders_elsewhere} more (${shortage.held_elsewhere})`);
  return parts.join(", ") || "nobody";
}

function expected(item) {
  const from = (at) => age(new Date().toISOString(), Date.parse(at));
  const because = item.expected_start_unknown_because;
  if (!item.expected_start) {
    if (because && item.expected_earliest) return `in ${from(item.expected_earliest)} at the earliest: ${because}`;
    return because ? `unknown: ${because}` : "";
  }
  const latest = item.expected_latest ? from(item.expected_latest) : "any time";
  return `in ${from(item.expected_start)} (80 %: ${from(item.expected_earliest)} to ${latest};`
    + ` from ${item.expected_from_runs} runs of its kind${item.expected_start_rough ? `; ${item.expected_start_rough}` : ""})`;
}

// --- beginning -------------------------------------------------------------------------------------

byId("filters").addEventListener("submit", (event) => event.preventDefault());
for (const id of ["search", "namespace", "status"]) byId(id).addEventListener("input", draw);
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, byId("token").value.trim());
  sessionStorage.setItem(ONLY, byId("only").value.trim());
  byId("token").value = "";
  follow();
});
byId("sign").addEventListener("click", () => {
  sessionStorage.removeItem(TOKEN);
  byId("only").value = sessionStorage.getItem(ONLY) || "";
  if (connection) connection.abort();
  byId("sign").hidden = true;
  signIn("");
});
setInterval(() => {
  for (const time of document.querySelectorAll("time")) time.textContent = age(time.dateTime);
}, 5000);
follow();
