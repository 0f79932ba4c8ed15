// Spokes, and the build machines of each platform.
import { asking, cell, element, key, link, note, number, section, shortened, since, status, table, titleOf, toMachines, toSpoke, toWorkload } from "/dom.js";
import { asked, doubt } from "/asked.js";
import { filteredBy, inCluster, inOrder, state } from "/state.js";

const SHOWN_MAX = 200;
const SPOKES = "How the spokes fare";
const MACHINES = "What is told of machines and slots";

export function spokes() {
  const said = asked("/api/v1/spokes");
  const { answer, problem: why } = said;
  return [element("h2", {}, "Spokes"), doubt(SPOKES, said), !answer ? (why ? null : asking())
    : answer.items.length ? table("Spokes", ["Spoke", "State", "#Offered", "#Chosen", "#Withdrawing", "#Latency", "#Failures", "Free quota"], answer.items.map(spokeLine))
      : note("No MultiKueueCluster names a spoke.")];
}

function spokeLine(each) {
  return element("tr", { "data-at": each.name }, element("th", { scope: "row" }, link(toSpoke(each), each.name)), cell(connected(each), unconnected(each)),
    number(each.offered), number(each.chosen), number(each.withdrawing), number(each.latencySeconds === undefined ? "–" : `${each.latencySeconds} s`),
    number(each.failures), cell(Object.entries(each.free).map(([name, free]) => `${free} ${name}`).join(", ") || "–"));
}

const connected = (each) => element("span", { class: "status", "data-of": each.active ? "ADMITTED" : each.active === false ? "EVICTED" : "FINISHED" },
  each.active ? "connected" : each.active === false ? "not connected" : "unknown");

const unconnected = (each) => (each.active === false ? element("span", { class: "sub" }, `${each.reason}: ${each.message}`) : null);

export function spoke(cluster, name) {
  const said = asked("/api/v1/spokes");
  const { answer } = said;
  const known = answer?.items.find((each) => each.cluster === cluster && each.name === name);
  const rows = [...state.workloads.values()].filter((row) => row.cluster === cluster && row.spoke === name).sort(inOrder);
  if (answer && !known && !rows.length) return [element("h2", {}, name), note("There is no such spoke.")];
  return [
    element("div", { class: "title" }, element("h2", {}, name, " ", known ? connected(known) : null), element("p", { class: "sub" }, "Spoke", inCluster({ cluster }))),
    doubt(SPOKES, said),
    known ? table("Orders", ["Spoke", "State", "#Offered", "#Chosen", "#Withdrawing", "#Latency", "#Failures", "Free quota"], [spokeLine(known)]) : null,
    section(`Runs here: ${rows.length}`, rows.length ? table("Workloads", ["Workload", "Status", "#Age"], rows.slice(0, SHOWN_MAX).map((row) =>
      element("tr", { "data-key": key(row) }, element("th", { scope: "row" }, link(toWorkload(row), `${row.namespace}/${titleOf(row)}`)),
        cell(status(row.status)), element("td", { class: "number" }, since(row.createdAt))))) : note("None."), shortened(rows, SHOWN_MAX, filteredBy({ cluster, spoke: name }))),
  ];
}

export function machines() {
  const said = asked("/api/v1/machines");
  const { answer, problem: why } = said;
  return [element("h2", {}, "Machines"), doubt(MACHINES, said), !answer ? (why ? null : asking())
    : answer.items.length ? table("Platforms", ["Platform", "#Slots in use", "#Kept", "#Machines", "#Starting", "#Refused"], answer.items.map((each) =>
      element("tr", { "data-at": each.platform }, element("th", { scope: "row" }, link(toMachines(each), each.platform)),
        number(each.slots.filter((slot) => slot.state !== "held").length), number(each.slots.filter((slot) => slot.state === "held").length),
        number(each.machines.length), number(each.machines.filter((machine) => machine.state === "launching").length), number(each.refused))))
      : note("No platform has a machine or a slot in use.")];
}

export function platform(cluster, name) {
  const said = asked("/api/v1/machines");
  const { answer, problem: why } = said;
  const known = answer?.items.find((each) => each.cluster === cluster && each.platform === name);
  if (!known) return [element("h2", {}, name), doubt(MACHINES, said), answer ? note("There is no such platform.") : why ? null : asking()];
  return [
    element("div", { class: "title" }, element("h2", {}, name), element("p", { class: "sub" }, "Platform of build machines", inCluster({ cluster }))),
    doubt(MACHINES, said),
    section("Machines", known.machines.length ? table("Machines", ["Machine", "Provider", "State", "For", "#Age"], known.machines.map((each) =>
      element("tr", { "data-at": each.name }, element("th", { scope: "row" }, each.name), cell(each.provider), cell(each.state),
        cell(each.shared ? "all builds of the pool" : "one build"), element("td", { class: "number" }, since(each.launchedAt))))) : note("None.")),
    section("Slots", known.slots.length ? table("Slots", ["Host", "State", "TaskRun"], known.slots.map((each, at) =>
      element("tr", { "data-at": `slot-${at}` }, element("th", { scope: "row" }, each.host), cell(each.state),
        cell(each.taskRun ? `${each.namespace}/${each.taskRun}` : "of another namespace")))) : note("None.")),
  ];
}
