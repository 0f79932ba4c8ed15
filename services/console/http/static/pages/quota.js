// A cohort or a flavor: whose quota it is, who uses it, who borrows and who lends.
import { amount, bar, element, key, link, note, number, problem, section, table, toCohort, toFlavor, toQueue } from "/dom.js";
import { asked } from "/asked.js";
import { clusterQueues, inCluster } from "/state.js";

export function cohort(cluster, name) {
  const rows = clusterQueues().filter((row) => row.cluster === cluster && (row.cohorts || []).includes(name));
  if (!rows.length) return [element("h2", {}, name), note("No ClusterQueue that you may see is in a cohort of this name.")];
  const above = rows[0].cohorts.slice(rows[0].cohorts.indexOf(name) + 1);
  const below = [...new Set(rows.map((row) => row.cohorts[row.cohorts.indexOf(name) - 1]).filter(Boolean))].sort();
  return [
    element("div", { class: "title" }, element("h2", {}, name), element("p", { class: "sub" }, "Cohort",
      above.flatMap((each) => [" → ", link(toCohort({ cluster, name: each }), each)]), inCluster({ cluster }))),
    below.length ? section("Cohorts in it", element("ul", { class: "plain" }, below.map((each) => element("li", {}, link(toCohort({ cluster, name: each }), each))))) : null,
    ...placesOf(rows).map(([flavor, resource]) => place(rows, flavor, resource)),
  ];
}

export function flavor(cluster, name) {
  const rows = clusterQueues().filter((row) => row.cluster === cluster && row.flavors.some((each) => each.name === name));
  const { answer, problem: why } = asked("/api/v1/flavors");
  const known = answer?.items.find((each) => each.cluster === cluster && each.name === name);
  if (!rows.length && answer && !known) return [element("h2", {}, name), note("There is no such flavor, or you may not see it.")];
  const facts = [["Node labels", Object.entries(known?.nodeLabels || {}).map(([label, value]) => `${label}=${value}`).join(", ") || "any node"],
    ["Taints", known?.nodeTaints.join(", ")], ["Topology", known?.topology]].filter(([, value]) => value);
  return [
    element("div", { class: "title" }, element("h2", {}, name), element("p", { class: "sub" }, "ResourceFlavor", inCluster({ cluster }))),
    known ? section("Nodes", element("dl", { class: "facts" }, facts.map(([title, value]) => [element("dt", {}, title), element("dd", {}, value)]))) : null,
    why ? problem(why) : null,
    ...placesOf(rows).filter(([each]) => each === name).map(([each, resource]) => place(rows, each, resource)),
  ];
}

function placesOf(rows) {
  const found = new Map();
  for (const row of rows) for (const each of row.flavors) for (const resource of each.resources) found.set(`${each.name}/${resource.name}`, [each.name, resource.name]);
  return [...found.values()].sort();
}

// One resource of one flavor: a row for each queue that has quota in it.
function place(rows, flavorName, resourceName) {
  const shown = rows.map((row) => ({ row, resource: row.flavors.find((each) => each.name === flavorName)?.resources.find((each) => each.name === resourceName) }))
    .filter(({ resource }) => resource);
  const sum = (field) => shown.reduce((total, { resource }) => total + amount(resource[field]), 0);
  const [nominal, reserved] = [sum("nominal"), sum("reserved")];
  const whole = nominal ? bar(`${Math.round(100 * reserved / nominal)} % of it is reserved`, { reserved: plain(reserved), nominal: plain(nominal), share: reserved / nominal }) : null;
  const lines = shown.sort((a, b) => amount(b.resource.reserved) - amount(a.resource.reserved)).map(({ row, resource }) => {
    const borrows = resource.borrowed !== "0";
    return element("tr", { "data-queue": key(row) }, element("th", { scope: "row" }, link(toQueue(row), row.name)),
      number(resource.nominal), number(resource.reserved), number(borrows ? resource.borrowed : "–"),
      number(borrows ? "–" : plain(Math.max(0, amount(resource.nominal) - amount(resource.reserved)))), number(row.pending));
  });
  return element("section", {}, element("h2", {}, `${resourceName} in `, link(toFlavor({ cluster: rows[0].cluster, name: flavorName }), flavorName)), whole,
    table(`${resourceName} in ${flavorName}`, ["ClusterQueue", "#Nominal", "#Reserved", "#Borrows", "#Not in use", "#Waiting"], lines));
}

const UNITS = [["Ti", 2 ** 40], ["Gi", 2 ** 30], ["Mi", 2 ** 20]];

// Sums are for reading: quantities of memory in binary units, all else as a number.
export function plain(value) {
  const unit = UNITS.find(([, size]) => value >= size);
  const shown = unit ? value / unit[1] : value;
  return `${Math.round(shown * 100) / 100}${unit ? unit[0] : ""}`;
}
