// Where quota is: of each ClusterQueue and cohort what is nominal, reserved, used, borrowed and lent, as bars with numbers beside them.
import { amount, element, link, toCohort, toQueue } from "/dom.js";
import { asked, doubt } from "/asked.js";
import { clusterQueues } from "/state.js";

const QUOTA = "/api/v1/quota";
const QUOTA_MS = 3000;
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 10;
const LEGEND = [["used", "used"], ["reserved", "reserved, not admitted yet"], ["borrowed", "borrowed beyond its own"],
  ["lent", "lent: held by others now"], ["room", "free"], ["mark", "its nominal quota"]];

let known = { answer: null, of: new Map() };

// `{ ready, doubt, of(kind, cluster, name) }`: the places of a ClusterQueue or cohort, and what to say if they are old or
// missing. Who sees no ClusterQueue may not ask.
export function balances() {
  const said = clusterQueues().length ? asked(QUOTA, QUOTA_MS) : {};
  const { answer, problem } = said;
  if (answer && known.answer !== answer) {
    known = { answer, of: new Map(answer.items.map((each) => [[each.kind, each.cluster, each.name].join("/"), each.places])) };
  }
  const found = answer ? known.of : new Map();
  return { ready: Boolean(answer || problem || !clusterQueues().length), doubt: doubt("What is used, borrowed and lent", said), of: (kind, cluster, name) => found.get([kind, cluster, name].join("/")) };
}

// Those of a queue: by its row until the console has said more, and where it is in no tree.
export function placesOf(row, balances) {
  return (!row.namespace && balances.of("ClusterQueue", row.cluster, row.name))
    || row.flavors.flatMap((flavor) => flavor.resources.map(({ name, nominal, reserved, borrowed }) => ({ flavor: flavor.name, resource: name, nominal, reserved, borrowed })));
}

export const isHeld = (place) => amount(place.reserved) > 0 || amount(place.lent) > 0;

export const shareOf = (place) => (amount(place.reserved) + amount(place.lent)) / (amount(place.nominal) || 1);

// Where all that is reserved is used, one number says both.
function worded(place) {
  const isAllUsed = place.used === place.reserved;
  const more = ["used", "borrowed", "lent"].filter((name) => place[name] !== undefined && (name === "used" ? !isAllUsed : place[name] !== "0"));
  const of = place.nominal === undefined ? "" : ` of ${place.nominal}`;
  return [`${place.reserved}${of} ${isAllUsed ? "used" : "reserved"}`, ...more.map((name) => `${place[name]} ${name}`)].join(" · ");
}

export function bar(label, place) {
  const text = worded(place);
  return element("div", { class: "use" }, element("span", {}, element("b", {}, label), element("span", {}, text)),
    place.nominal === undefined ? null : drawn(`${label}: ${text}`, place));
}

function picture(label, parts) {
  const made = document.createElementNS(SVG, "svg");
  const how = label ? [["role", "img"], ["aria-label", label]] : [["aria-hidden", "true"]];
  for (const [name, value] of [["class", "bar"], ["viewBox", `0 0 100 ${HEIGHT}`], ["preserveAspectRatio", "none"], ...how]) made.setAttribute(name, value);
  for (const [kind, from, to] of parts) made.append(...strips(kind, from, to));
  return made;
}

// Each part has a form of its own, beside its colour: what is reserved is striped, what is lent is low.
function strips(kind, from, to) {
  if (to <= from) return [];
  const low = kind === "lent" ? HEIGHT / 2 : 0;
  const rect = (x, width) => {
    const made = document.createElementNS(SVG, "rect");
    for (const [name, value] of [["class", kind], ["x", x], ["y", low], ["width", width], ["height", HEIGHT - low]]) made.setAttribute(name, value);
    return made;
  };
  if (kind !== "reserved") return [rect(from, to - from)];
  const found = [];
  for (let x = from; x < to; x += 2) found.push(rect(x, Math.min(1.2, to - x)));
  return found;
}

function drawn(label, place) {
  const [nominal, reserved, borrowed, lent] = ["nominal", "reserved", "borrowed", "lent"].map((name) => amount(place[name]));
  const whole = Math.max(nominal, reserved) || 1;
  const own = reserved - borrowed;
  const used = Math.min(own, place.used === undefined ? own : amount(place.used));
  const at = (value) => 100 * value / whole;
  const parts = [["room", 0, 100], ["used", 0, at(used)], ["reserved", at(used), at(own)], ["borrowed", at(own), at(reserved)],
    ["lent", at(Math.max(reserved, nominal - lent)), at(nominal)]];
  if (nominal < whole) parts.push(["mark", Math.max(0, at(nominal) - 0.5), Math.max(0, at(nominal) - 0.5) + 1]);
  return picture(label, parts);
}

const SAMPLES = { mark: [["room", 0, 100], ["mark", 46, 54]], reserved: [["room", 0, 100], ["reserved", 0, 100]], lent: [["room", 0, 100], ["lent", 0, 100]] };

export const legend = () => element("ul", { class: "legend", "aria-label": "What the bars show" }, LEGEND.map(([kind, text]) =>
  element("li", {}, picture("", SAMPLES[kind] || [[kind, 0, 100]]), text)));

// Who borrows, and from whom, in one resource of one flavor. Only queues of one tree of cohorts lend to each other: where
// there are several, each is named.
export function flows(rows, flavor, resource, balances) {
  const trees = [...new Set(rows.map(rootOf))].sort();
  return trees.map((root) => flow(trees.length > 1 ? root : "", rows.filter((row) => rootOf(row) === root), flavor, resource, balances));
}

const rootOf = (row) => (row.cohorts || []).at(-1) || "";

function flow(root, rows, flavor, resource, balances) {
  const held = rows.map((row) => ({ row, place: placesOf(row, balances).find((each) => each.flavor === flavor && each.resource === resource) })).filter(({ place }) => place);
  const listed = (field) => held.filter(({ place }) => amount(place[field]) > 0).sort((a, b) => amount(b.place[field]) - amount(a.place[field]))
    .flatMap(({ row, place }, at) => [at ? ", " : "", link(toQueue(row), row.name), ` ${place[field]}`]);
  const [borrowers, lenders] = [listed("borrowed"), listed("lent")];
  if (!borrowers.length) return null;
  return element("p", { class: "sub flows", "data-at": `flow ${root}` }, root ? ["Cohort ", link(toCohort({ cluster: rows[0].cluster, name: root }), root), ": borrowed by "] : "Borrowed by ", borrowers, lenders.length ? [". Lent by ", lenders, "."]
    : ". Every queue here could still have all of its own.");
}

// All ClusterQueues that could lend to this one or borrow from it.
export function treeOf(row) {
  return rootOf(row) ? clusterQueues().filter((each) => each.cluster === row.cluster && rootOf(each) === rootOf(row)) : [row];
}
