// What if: change a quota, submit a workload or take a queue away, and see before and after. Nothing is
// written. What is asked is in the address; it is played when somebody presses the button.
import { element, key, note, number, problem, section, table } from "/dom.js";
import { clusterQueues, localQueues, severalClusters } from "/state.js";
import { ask } from "/stream.js";

const PLAYING_MS = 120000; // A what-if may wait for others and take a minute itself.
const KINDS = { quota: "change a quota", submit: "submit a workload", remove: "remove a ClusterQueue" };
const QUEUE_LABEL = "kueue.x-k8s.io/queue-name";

let shown = [];

export function whatIf(query) {
  const kind = query.get("change") in KINDS ? query.get("change") : "quota";
  const queues = kind === "submit" ? localQueues() : clusterQueues();
  const heading = [element("h2", {}, "What if"), element("p", { class: "hint" },
    "Plays what waits and runs now to its end, with and without the change. Nothing is written.")];
  const select = (name, title, choices, chosen) => element("label", {}, title, element("select", { name, id: `what-if-${name}` },
    choices.map(([value, text]) => element("option", { value, selected: value === chosen ? "" : null }, text))));
  const input = (name, title, value, placeholder) => element("label", {}, title,
    element("input", { name, id: `what-if-${name}`, value: value || "", placeholder, autocomplete: "off", spellcheck: "false" }));
  const row = queues.find((each) => key(each) === query.get("queue")) || queues[0];
  const places = row && kind === "quota" ? placesOf(row) : [];
  const place = places.find((each) => each.value === query.get("place")) || places[0];
  const form = element("form", { id: "what-if", class: "filters" }, select("change", "What changes", Object.entries(KINDS), kind),
    row ? select("queue", row.namespace ? "LocalQueue" : "ClusterQueue", queues.map((each) => [key(each), named(each)]), key(row)) : null,
    place ? select("place", "Quota of", places.map((each) => [each.value, each.title]), place.value) : null,
    place ? input("amount", `instead of ${place.nominal}`, query.get("amount"), place.nominal) : null,
    kind === "submit" ? input("asks", "Each pod asks", query.get("asks"), "cpu=2, memory=4Gi") : null,
    kind === "submit" ? input("pods", "Pods", query.get("pods"), "1") : null,
    row ? element("button", { type: "submit" }, "Play it") : null);
  form.oninput = (event) => {
    const data = [...new FormData(event.currentTarget)].filter(([, value]) => value);
    const other = event.target.nodeName === "SELECT" && event.target.name;
    const kept = data.filter(([name]) => !(other && name === "amount") && !(other === "change" && ["queue", "place"].includes(name)));
    history.replaceState(null, "", `/what-if?${new URLSearchParams(kept)}`);
    if (other) document.dispatchEvent(new Event("redraw"));
  };
  form.onsubmit = (event) => {
    event.preventDefault();
    play(row, new FormData(event.currentTarget), place);
  };
  return [...heading, form, row ? null : note(`No ${kind === "submit" ? "LocalQueues" : "ClusterQueues"} that you may see.`),
    element("div", { id: "what-if-answer", "aria-live": "polite" }, shown.map((each) => each.cloneNode(true)))];
}

const named = (row) => [severalClusters() ? row.cluster : null, row.namespace, row.name].filter(Boolean).join(" / ");

const placesOf = (row) => row.flavors.flatMap((flavor) => flavor.resources.filter((resource) => resource.nominal !== undefined)
  .map((resource) => ({ value: `${flavor.name}/${resource.name}`, title: `${resource.name} in ${flavor.name}`,
    flavor: flavor.name, resource: resource.name, nominal: resource.nominal })));

async function play(row, data, place) {
  shown = [note("playing…")];
  document.dispatchEvent(new Event("redraw"));
  try {
    shown = answered(await ask("/api/v1/simulate", { cluster: row.cluster, ...change(row, data, place) }, PLAYING_MS));
  } catch (error) {
    shown = [problem(error.message)];
  }
  document.dispatchEvent(new Event("redraw"));
}

function change(row, data, place) {
  if (data.get("change") === "remove") return { remove: [`ClusterQueue/${row.name}`] };
  if (data.get("change") === "submit") return { manifests: [job(row, data)] };
  const amount = (data.get("amount") || "").trim();
  if (!amount) throw new Error(`Say how much ${place.resource} ${row.name} shall have instead of ${place.nominal}.`);
  return { quotas: [{ clusterQueue: row.name, flavor: place.flavor, resource: place.resource, nominalQuota: amount }] };
}

function job(row, data) {
  const pods = Number(data.get("pods") || "1");
  if (!Number.isInteger(pods) || pods < 1) throw new Error(`Pods: "${data.get("pods")}" is no whole number from 1 on.`);
  const requests = {};
  for (const each of (data.get("asks") || "cpu=2, memory=4Gi").split(",")) {
    const [name, quantity, ...more] = each.split("=").map((part) => part.trim());
    if (!name || !quantity || more.length) throw new Error(`Each pod asks: "${each.trim()}" is no RESOURCE=QUANTITY, for instance cpu=2.`);
    requests[name] = quantity;
  }
  const containers = [{ name: "main", image: "what-if", resources: { requests } }];
  return { apiVersion: "batch/v1", kind: "Job", metadata: { name: "what-if", namespace: row.namespace, labels: { [QUEUE_LABEL]: row.name } },
    spec: { parallelism: pods, completions: pods, template: { spec: { restartPolicy: "Never", containers } } } };
}

function answered(answer) {
  const names = [...new Set([...Object.keys(answer.before.queues), ...Object.keys(answer.after.queues)])].sort();
  const rows = names.map((name) => {
    const [before, after] = [answer.before.queues[name], answer.after.queues[name]];
    const both = (field, form = (value) => value ?? "–") => {
      const [was, is] = [form(before?.[field]), form(after?.[field])];
      return was === is ? number(is) : element("td", { class: "number changed" }, element("s", {}, String(was)), " → ", String(is));
    };
    return element("tr", { "data-key": name }, element("th", { scope: "row" }, name.split("/").slice(1).join(" / ")), both("workloads"),
      both("admitted"), both("waitP50Seconds", seconds), both("waitP95Seconds", seconds), both("preemptions"), both("never"));
  });
  const [was, is] = [answer.before.makespanSeconds, answer.after.makespanSeconds].map(seconds);
  return [section(answer.changes.join(", ") || "Nothing changes",
    ...(answer.problems || []).map((each) => problem(each)),
    answer.submitted.length ? element("ul", {}, answer.submitted.map((each) => element("li", {}, each))) : null,
    table("Before and after", ["LocalQueue", "#Workloads", "#Admitted", "#Wait, median", "#Wait, 95 %", "#Preemptions", "#Never"], rows),
    answer.before.makespanSeconds === undefined ? null
      : note(was === is ? `The last workload ends after ${is}, as without the change.` : `The last workload ends after ${is} instead of ${was}.`))];
}

const seconds = (value) => (value === undefined || value === null ? "–" : value < 120 ? `${Math.round(value)} s` : `${Math.round(value / 60)} min`);
