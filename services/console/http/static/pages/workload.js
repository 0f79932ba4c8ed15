// One workload: how it stands, why, since when, and the commands that tell more.
import { age, asking, cell, copyable, element, key, link, note, number, problem, redraw, requests, section, since, status, table, titleOf, toFlavor, toNamespace, toQueue, toSpoke, toWorkload } from "/dom.js";
import { inCluster, state } from "/state.js";
import { asked, doubt } from "/asked.js";
import { Unanswered, ask } from "/stream.js";
import { HOPELESS, NEVER } from "/reasons.js";

const AGAIN_MS = 4500; // What is said is at most five seconds old.
const FORECAST_MS = 60000;
const SELDOM_MS = 15000;
const LATE_MS = 60000;

let why = { of: null };

export function workload(cluster, namespace, name) {
  const row = state.workloads.get(key({ cluster, namespace, name })) || ofJob(cluster, namespace, name);
  if (!row) {
    const said = happened({ cluster, namespace, name });
    const left = state.omitted ? `It has left the queues, or is one of the ${state.omitted} older workloads that this page leaves out` : "It has left the queues";
    return [element("h2", {}, `${namespace}/${name}`), note(said.answer ? `${left}. This is what the logs hold about it.`
      : `${left}, or you may not see it.`), timeline(said),
    section("Look further", copyable(`sluice history ${namespace}/${name}`))];
  }
  explain(row);
  const said = happened(row);
  const asks = asked(`${pathOf(row)}/given?cluster=${encodeURIComponent(row.cluster)}`, SELDOM_MS, changedAt(row));
  return [
    element("div", { class: "title", "data-key": key(row) },
      element("h2", {}, `${row.namespace}/${titleOf(row)}`, " ", status(row.status)),
      element("p", { class: "sub" }, row.job ? `${row.job.kind} · Workload ${row.name}` : "Workload",
        inCluster(row), row.spoke ? [" · on spoke ", link(toSpoke({ cluster: row.cluster, name: row.spoke }), row.spoke)] : null)),
    times(row, said.answer?.lastAdmittedAt),
    // What is below comes with it: else it would move while it is read.
    ...(asks.answer || asks.problem ? [given(row, asks), ...rest(row, said)]
      : [section("Asked and given", asking())]),
  ];
}

const rest = (row, said) => [
    section("Why", element("div", { id: "why", class: row.status === "PENDING" ? "roomy" : null }, ...why.shown.map((each) => each.cloneNode(true)))),
    timeline(said),
    section("Look further", links(said.answer), ...commands(row).map(copyable)),
];

// A job's name stands for its newest Workload, as it does for the commands.
const ofJob = (cluster, namespace, name) => [...state.workloads.values()]
  .filter((row) => row.cluster === cluster && row.namespace === namespace && row.job?.name === name)
  .sort((a, b) => Date.parse(b.createdAt) - Date.parse(a.createdAt))[0];

const pathOf = (row) => `/api/v1/namespaces/${encodeURIComponent(row.namespace)}/workloads/${encodeURIComponent(row.name)}`;

// A line for each resource of each pod set: what it asks, and the quota and the flavor that it has.
function given(row, asks) {
  const old = doubt("What it is given", asks);
  if (!asks.answer) return section("Asked", element("p", { class: "asks" }, requests(row)), old);
  const { items, flavors } = asks.answer;
  const lines = items.flatMap((set) => set.resources.map((each) => element("tr", { "data-at": `${set.name}/${each.name}` },
    element("th", { scope: "row" }, set.name), number(pods(set)), cell(each.name), number(each.perPod), number(each.asked),
    element("td", { class: each.given && each.given !== each.asked ? "number changed" : "number" }, each.given ?? "–"),
    cell(each.flavor ? link(toFlavor({ cluster: row.cluster, name: each.flavor }), each.flavor) : "–"))));
  const partly = items.filter((set) => set.given !== undefined && set.given !== set.asked).map((set) => element("p", { class: "sub", "data-at": `partly ${set.name}` },
    `Pod set ${set.name} has quota for ${set.given} of its ${set.asked} pods${set.least === undefined ? "" : `; it may start with ${set.least}`}.`));
  const nodes = flavors.filter((each) => each.nodeLabels).map((each) => element("p", { class: "sub", "data-at": `flavor ${each.name}` }, "Flavor ",
    link(toFlavor({ cluster: row.cluster, name: each.name }), each.name), ` is ${labels(each.nodeLabels)}.`));
  return section("Asked and given", old, lines.length
    ? table("Asked and given", ["Pod set", "#Pods", "Resource", "#Each pod", "#Asked", "#Given", "Flavor"], lines) : note("It asks for nothing."),
    flavors.length ? null : element("p", { class: "sub" }, "It holds no quota."), ...partly, ...nodes);
}

const pods = (set) => (set.given === undefined || set.given === set.asked ? set.asked : `${set.given} of ${set.asked}`);

function labels(found) {
  const pairs = Object.entries(found).map(([name, value]) => `${name}=${value}`);
  return pairs.length ? `on nodes with ${pairs.join(", ")}` : "on any node";
}

// From the logs. It is asked again when the row has changed, and seldom besides.
function happened(row) {
  return asked(`${pathOf(row)}/timeline?cluster=${encodeURIComponent(row.cluster)}`, SELDOM_MS, changedAt(row));
}

const seen = { row: null, at: 0 };

// When the row that is shown became another one, or went.
function changedAt(ident) {
  const row = state.workloads.get(key(ident)) || key(ident);
  if (seen.row !== row) Object.assign(seen, { row, at: Date.now() });
  return seen.at;
}

function timeline(said) {
  const { answer } = said;
  const old = doubt("What the logs hold", said);
  if (!answer) return section("Timeline", old || element("div", { class: "roomy" }, asking()));
  const first = answer.items[0] ? Date.parse(answer.items[0].at) : 0;
  const line = (each, at) => element("li", { "data-at": `line-${at}`, "data-what": each.what },
    element("time", { datetime: each.at, title: each.at, "data-fixed": "" }, `+${age(answer.items[0].at, Math.max(first, Date.parse(each.at)))}`), element("span", {}, each.text));
  return section("Timeline", old, element("p", { class: "sub" }, `from ${answer.items[0]?.at.replace("T", " ").slice(0, 19)} UTC`,
    answer.omitted ? `; ${answer.omitted} earlier lines are left out` : ""), preempted(answer), element("ol", { class: "timeline" }, answer.items.map(line)));
}

function preempted({ cluster, preemptor }) {
  if (!preemptor) return null;
  const who = preemptor.name ? link(toWorkload({ cluster, ...preemptor }), `${preemptor.namespace}/${preemptor.name}`) : "a workload of another namespace";
  return element("p", { class: "sub", "data-at": "preemptor" }, "Preempted last by ", who, ", ", since(preemptor.at), " ago.");
}

function links(answer) {
  const found = [answer?.traceUrl ? link(answer.traceUrl, "Trace") : answer?.traceId ? element("span", {}, "Trace ", element("code", {}, answer.traceId)) : null,
    answer?.jobUrl ? link(answer.jobUrl, "Job") : null].filter(Boolean);
  return found.length ? element("p", { class: "links" }, found) : null;
}

// `lastAdmitted`: from the logs, also of one that has lost its quota since.
function times(row, lastAdmitted) {
  const step = (title, at, more, missing = "not yet") => element("li", { class: at ? "done" : null },
    element("strong", {}, title), element("span", {}, at ? [since(at), " ago"] : missing), more || null);
  const ended = row.finishedAt ? (row.succeeded ? "succeeded" : "failed") : "finished";
  return element("ol", { class: "steps", "aria-label": "Timeline" },
    step("created", row.createdAt),
    step("admitted", row.admittedAt, row.admittedAt
      ? element("small", {}, `after ${age(row.createdAt, Date.parse(row.admittedAt))}`) : null,
      lastAdmitted ? ["not now, last ", since(lastAdmitted), " ago"] : "not yet"),
    step(ended, row.finishedAt, row.finishedAt && row.admittedAt
      ? element("small", {}, `ran ${age(row.admittedAt, Date.parse(row.finishedAt))}`) : null));
}

const token = (name) => name.replaceAll(".", "_");

const subject = (what, row) => `sluice.${what}.${[row.cluster, row.namespace, row.name].map(token).join(".")}`;

const commands = (row) => [
  `sluice explain ${row.namespace}/${row.name}`,
  `sluice history ${row.namespace}/${row.name}`,
  `sluice who-preempted ${row.namespace}/${row.name}`,
  `nats stream get ADMISSIONS --last-for ${subject("admission", row)}`,
  `nats sub '${subject("*", row)}'`,
  `kubectl describe workload -n ${row.namespace} ${row.name}`,
  ...(row.job ? [`kubectl describe ${row.job.kind.toLowerCase()} -n ${row.namespace} ${row.job.name}`] : []),
];

// Facts at once and every few seconds; the forecast is long work for the console, so it is asked seldom.
async function explain(row) {
  if (why.of !== key(row)) why = { of: key(row), shown: [asking()], row: null, asked: 0, foretold: 0 };
  const mine = why;
  const isOther = mine.row?.status !== row.status || mine.row?.reason !== row.reason;
  const isOld = Date.now() - mine.asked > AGAIN_MS;
  if (mine.asking || !(isOther || (isOld && (row.status === "PENDING" || mine.failed)))) return;
  mine.asking = true;
  mine.row = row;
  await answer(mine, row, false);
  if (isOther || Date.now() - mine.foretold > FORECAST_MS) {
    await answer(mine, row, true);
    mine.foretold = Date.now();
  }
  mine.asking = false;
  mine.asked = Date.now();
}

async function answer(mine, row, forecast) {
  try {
    const { items } = await ask(`${pathOf(row)}/explain?cluster=${encodeURIComponent(row.cluster)}${forecast ? "&forecast=true" : ""}`);
    if (forecast) mine.forecast = new Map(items.map((item) => [item.name, expected(item)]));
    mine.shown = mine.facts = items.map((item) => facts(item, mine.forecast?.get(item.name)));
    mine.failed = false;
  } catch (error) {
    mine.failed = true;
    // What was known before the connection was cut still helps.
    mine.shown = [problem(error.message), ...(error instanceof Unanswered ? mine.facts || [] : [])];
  }
  if (why === mine) redraw(!mine.asked);
}

function facts(item, foretold) {
  const list = element("dl", { class: "facts" });
  const line = (title, ...text) => {
    if (text.some(Boolean)) list.append(element("dt", {}, title), element("dd", {}, ...text));
  };
  line("Reason", item.reason);
  line("Message", item.message);
  line("What would help", item.remedy);
  line("Expected start", foretold ?? (item.expected_start_unknown_because ? "being worked out…" : ""));
  if (item.queue) {
    line("Queue", link(toQueue({ cluster: item.cluster, namespace: item.namespace, name: item.queue }), item.queue),
      item.cluster_queue ? " → " : "", item.cluster_queue
        ? link(toQueue({ cluster: item.cluster, name: item.cluster_queue }), item.cluster_queue) : "", `, priority ${item.priority}`);
  }
  line("Namespace", link(toNamespace(item.namespace), item.namespace));
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
  if (HOPELESS.has(item.reason)) return NEVER;
  const from = (at) => age(new Date().toISOString(), Date.parse(at));
  const because = item.expected_start_unknown_because;
  if (!item.expected_start) {
    // An earliest start that is near says nothing: it waits now.
    if (because && Date.parse(item.expected_earliest) - Date.now() > LATE_MS) return `in ${from(item.expected_earliest)} at the earliest: ${because}`;
    return because ? `unknown: ${because}` : "";
  }
  const latest = item.expected_latest ? from(item.expected_latest) : "any time";
  return `in ${from(item.expected_start)} (80 %: ${from(item.expected_earliest)} to ${latest};`
    + ` from ${item.expected_from_runs === 1 ? "1 run" : `${item.expected_from_runs} runs`} of its kind${item.expected_start_rough ? `; ${item.expected_start_rough}` : ""})`;
}
