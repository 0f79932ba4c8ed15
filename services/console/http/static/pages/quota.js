// A cohort or a flavor: whose quota it is, who uses it, who borrows and who lends.
import { amount, asking, element, key, link, note, number, section, table, toCohort, toFlavor, toQueue } from "/dom.js";
import { asked, doubt } from "/asked.js";
import { balances, bar, flows, legend, placesOf } from "/balance.js";
import { clusterQueues, inCluster } from "/state.js";

export function cohort(cluster, name) {
  const rows = clusterQueues().filter((row) => row.cluster === cluster && (row.cohorts || []).includes(name));
  if (!rows.length) return [element("h2", {}, name), note("No ClusterQueue that you may see is in a cohort of this name.")];
  const above = rows[0].cohorts.slice(rows[0].cohorts.indexOf(name) + 1);
  const known = balances();
  const below = [...new Set(rows.map((row) => row.cohorts[row.cohorts.indexOf(name) - 1]).filter(Boolean))].sort();
  return [
    element("div", { class: "title" }, element("h2", {}, name), element("p", { class: "sub" }, "Cohort",
      above.flatMap((each) => [" → ", link(toCohort({ cluster, name: each }), each)]), inCluster({ cluster }))),
    below.length ? section("Cohorts in it", element("ul", { class: "plain" }, below.map((each) => element("li", {}, link(toCohort({ cluster, name: each }), each))))) : null,
    ...(known.ready ? [known.doubt, legend(), ...placesIn(rows, known).map(([flavor, resource]) => place(rows, flavor, resource, known, known.of("Cohort", cluster, name)))] : [asking()]),
  ];
}

export function flavor(cluster, name) {
  const rows = clusterQueues().filter((row) => row.cluster === cluster && row.flavors.some((each) => each.name === name));
  const flavors = asked("/api/v1/flavors");
  const { answer, problem: why } = flavors;
  const balanced = balances();
  const known = answer?.items.find((each) => each.cluster === cluster && each.name === name);
  if (!rows.length && answer && !known) return [element("h2", {}, name), note("There is no such flavor, or you may not see it.")];
  const facts = [["Node labels", Object.entries(known?.nodeLabels || {}).map(([label, value]) => `${label}=${value}`).join(", ") || "any node"],
    ["Taints", known?.nodeTaints.join(", ")], ["Topology", known?.topology]].filter(([, value]) => value);
  return [
    element("div", { class: "title" }, element("h2", {}, name), element("p", { class: "sub" }, "ResourceFlavor", inCluster({ cluster }))),
    known ? section("Nodes", element("dl", { class: "facts" }, facts.map(([title, value]) => [element("dt", {}, title), element("dd", {}, value)]))) : null,
    doubt("What is told of nodes", flavors),
    ...(balanced.ready && (answer || why) ? [balanced.doubt, rows.length ? legend() : null,
      ...placesIn(rows, balanced).filter(([each]) => each === name).map(([each, resource]) => place(rows, each, resource, balanced))] : [asking()]),
  ];
}

function placesIn(rows, known) {
  const found = new Map(rows.flatMap((row) => placesOf(row, known)).map(({ flavor, resource }) => [`${flavor}/${resource}`, [flavor, resource]]));
  return [...found.values()].sort();
}

// One resource of one flavor: a row for each queue that has quota in it. `whole`: the places of their cohort.
function place(rows, flavor, resource, known, whole = []) {
  const shown = rows.map((row) => ({ row, place: placesOf(row, known).find((each) => each.flavor === flavor && each.resource === resource) }))
    .filter((each) => each.place).sort((a, b) => amount(b.place.reserved) - amount(a.place.reserved));
  const together = whole.find((each) => each.flavor === flavor && each.resource === resource) || Object.fromEntries(["nominal", "reserved", "used", "borrowed", "lent"].map((field) =>
    [field, sum(shown.map((each) => each.place[field]))]));
  const share = amount(together.nominal) ? `${Math.round(100 * amount(together.reserved) / amount(together.nominal))} % of it` : "All queues";
  const lines = shown.map((each) => element("tr", { "data-queue": key(each.row) }, element("th", { scope: "row" }, link(toQueue(each.row), each.row.name)),
    ...["nominal", "reserved", "used", "borrowed", "lent"].map((field) => number(each.place[field])), number(free(each.place)), number(each.row.pending)));
  return element("section", {}, element("h2", {}, `${resource} in `, link(toFlavor({ cluster: rows[0].cluster, name: flavor }), flavor)),
    bar(share, together), flows(shown.map((each) => each.row), flavor, resource, known),
    table(`${resource} in ${flavor}`, ["ClusterQueue", "#Nominal", "#Reserved", "#Used", "#Borrowed", "#Lent", "#Free", "#Waiting"], lines));
}

// A sum with a part that is not known is not known.
const sum = (parts) => (parts.includes(undefined) ? undefined : plain(parts.reduce((total, each) => total + amount(each), 0)));

// Of its own quota, what it could have now.
const free = (place) => (place.lent === undefined ? undefined : plain(Math.max(0, amount(place.nominal) - amount(place.reserved) - amount(place.lent))));

const UNITS = [["Ti", 2 ** 40], ["Gi", 2 ** 30], ["Mi", 2 ** 20]];

// Sums are for reading: quantities of memory in binary units, all else as a number.
export function plain(value) {
  const unit = UNITS.find(([, size]) => value >= size);
  const shown = unit ? value / unit[1] : value;
  return `${Math.round(shown * 100) / 100}${unit ? unit[0] : ""}`;
}
