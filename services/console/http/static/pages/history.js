// The recent past: admissions, preemptions, waits by priority and quota in use, counted by the console from the logs.
import { asking, element, key, note, number, section, table } from "/dom.js";
import { asked, doubt } from "/asked.js";
import { again, chart, choice, spanOf, time, told } from "/chart.js";
import { used } from "/pages/use.js";
import { clusterQueues, severalClusters } from "/state.js";

export function history(query) {
  const span = spanOf(query);
  const path = `/api/v1/trends?span=${span}`;
  const said = asked(path);
  const { answer, problem: why } = said;
  // While the logs are read the figures grow: the page follows them.
  if (answer && !answer.complete) again(path);
  const reading = answer && !answer.complete
    ? `The logs are being read${answer.readUntil ? `, up to ${time(answer.readUntil)}` : ""}: the figures grow still.` : "";
  const queue = query.get("queue");
  return [element("h2", {}, "History"), element("div", { class: "row" }, choice("/history", span, queue ? `&queue=${encodeURIComponent(queue)}` : ""),
    element("p", { class: "sub", role: "status" }, reading)), doubt("The recent past", said), ...(answer ? [...shown(answer), use(queue, span)] : why ? [] : [asking()])];
}

// Of one ClusterQueue at a time: the one in the address, else the fullest.
function use(chosen, span) {
  const queues = clusterQueues();
  if (!queues.length) return null;
  const most = (row) => Math.max(0, ...row.flavors.flatMap((each) => each.resources.map((resource) => resource.share || 0)));
  const row = queues.find((each) => key(each) === chosen) || queues.reduce((found, each) => (most(each) > most(found) ? each : found));
  const select = element("select", { id: "history-queue", name: "queue" }, queues.map((each) =>
    element("option", { value: key(each), selected: each === row ? "" : null }, severalClusters() ? `${each.cluster} / ${each.name}` : each.name)));
  const form = element("form", { class: "filters", id: "history-use" }, element("label", {}, "ClusterQueue", select));
  form.onsubmit = (event) => event.preventDefault();
  form.oninput = (event) => {
    window.history.replaceState(null, "", `/history?span=${span}&queue=${encodeURIComponent(event.target.value)}`);
    document.dispatchEvent(new Event("redraw"));
  };
  return section("Quota in use", form, ...used(row, span));
}

function shown({ points, seconds }) {
  const sum = (field) => points.reduce((total, point) => total + point[field], 0);
  const tiers = [...new Set(points.flatMap((point) => point.waits.map((wait) => wait.priority)))]
    .sort((a, b) => (Number.isNaN(Number(a)) ? 1 : Number.isNaN(Number(b)) ? -1 : Number(b) - Number(a)));
  return [
    section(`Admissions: ${sum("admitted")}`, chart("Admissions", points, (point) => point.admitted, "used")),
    section(`Preemptions: ${sum("preempted")}`, chart("Preemptions", points, (point) => point.preempted, "over")),
    section("Waits by priority", tiers.length ? tiers.map((tier) => [element("h3", {}, `Priority ${tier}`),
      chart(`Longest waits of priority ${tier}, 95 %`, points, (point) => point.waits.find((wait) => wait.priority === tier)?.p95Seconds || 0, "borrowed", told)])
      : note("Nobody was admitted.")),
    element("details", { id: "history-figures" }, element("summary", {}, "All figures"),
      table("Figures", ["From", "#Admitted", "#Preempted", "Waits: median and 95 %"], points.filter((point) => point.admitted || point.preempted).map((point) =>
        element("tr", { "data-at": point.at }, element("th", { scope: "row" }, time(point.at)), number(point.admitted), number(point.preempted),
          element("td", {}, point.waits.map((wait) => `priority ${wait.priority}: ${told(wait.p50Seconds)}, ${told(wait.p95Seconds)}`).join("; ")))))),
    note(`Times are UTC. A bar is ${told(seconds)}.`),
  ];
}
