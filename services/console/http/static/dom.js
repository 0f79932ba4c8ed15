// Makes elements, and turns what the console says into words.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(attribute, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

// Draw the page: at once where somebody waits for it, else with the next repaint.
export const redraw = (atOnce) => document.dispatchEvent(new Event(atOnce ? "redraw" : "changed"));

export const key = (row) => [row.cluster, row.namespace || "", row.name].join("/");

const path = (...parts) => "/" + parts.map(encodeURIComponent).join("/");

export const toQueue = (row) => row.namespace
  ? path("localqueues", row.cluster, row.namespace, row.name)
  : path("clusterqueues", row.cluster, row.name);

export const toWorkload = (row) => path("workloads", row.cluster, row.namespace, row.name);

export const toCohort = (row) => path("cohorts", row.cluster, row.name);

export const toFlavor = (row) => path("flavors", row.cluster, row.name);

export const toSpoke = (row) => path("spokes", row.cluster, row.name);

export const toMachines = (row) => path("machines", row.cluster, row.platform);

export const toNamespace = (name) => path("namespaces", name);

export const link = (to, text, attributes = {}) => element("a", { href: to, ...attributes }, text);

export const titleOf = (row) => (row.job ? row.job.name : row.name);

export const words = (status) => ({ QUOTARESERVED: "quota reserved", HOLDING: "holding quota" })[status] || status.toLowerCase();

export function age(from, to = Date.now()) {
  const seconds = Math.max(0, Math.round((to - Date.parse(from)) / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

// Ages grow while nothing else changes.
export function retime(within) {
  for (const time of within.querySelectorAll("time:not([data-fixed])")) time.textContent = age(time.dateTime);
}

export const since = (at) => element("time", { datetime: at, title: at }, age(at));

export const status = (of) => element("span", { class: "status", "data-of": of }, words(of));

export const note = (text) => element("p", { class: "empty" }, text);

// It has a key of its own, so that no other paragraph takes its place on the page.
export const asking = () => element("p", { class: "empty", "data-at": "asking" }, "asking…");

export const problem = (text) => element("p", { class: "problem" }, text);

export function section(title, ...children) {
  return element("section", {}, element("h2", {}, title), ...children);
}

// Heads that begin with `#` are of numbers.
export const heads = (names) => names.map((each) => element("th", { scope: "col", class: each.startsWith("#") ? "number" : null },
  each.replace("#", "")));

// On a phone a row is a card (`console.css`): each cell has its head beside it, and is still a cell.
function labelled(row, names) {
  row.setAttribute("role", "row");
  [...row.children].forEach((each, at) => {
    each.setAttribute("role", each.nodeName === "TH" ? "rowheader" : "cell");
    each.dataset.label = (names[at] || "").replace("#", "");
  });
  return row;
}

export function table(label, names, rows) {
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${label}, scrollable` },
    element("table", { role: "table", class: "cards" }, element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, heads(names))),
      element("tbody", { role: "rowgroup" }, [rows].flat(Infinity).filter(Boolean).map((row) => labelled(row, names)))));
}

// What a list leaves out of its rows, and where all of them are. `filters`: those of the list of workloads.
export const shortened = (rows, most, filters) => (rows.length > most ? element("p", { class: "empty" }, `The first ${most} of ${rows.length}: `,
  link(`/workloads?${new URLSearchParams(filters)}`, "see all of them"), ".") : null);

// Kueue's messages begin with what everybody knows who looks at a queue.
export const plainly = (message) => (message || "").replace(/^couldn't assign flavors to pod set \S+: /, "");

export const cell = (...children) => element("td", {}, ...children);

// Why a queue is inactive, and what makes it active again.
export const inactive = (row) => `${[row.reason, row.message].filter(Boolean).join(": ").replace(/\.$/, "")}. To do: ${row.remedy || "correct what it names"}.`;

export const number = (value) => element("td", { class: "number" }, String(value ?? "–"));

export const requests = (row) => Object.entries(row.asks).map(([name, amount]) => `${amount} ${name}`).join(", ") || "–";

export function copyable(command) {
  const button = element("button", { type: "button", class: "copy", "aria-label": `Copy: ${command}` }, "copy");
  button.onclick = async () => {
    button.textContent = await copied(command) ? "copied" : "select and copy it by hand";
  };
  return element("div", { class: "command", "data-at": command }, element("code", {}, command), button);
}

// A page without TLS has no clipboard.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

const UNITS = { n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };

// For sums and the length of a bar only: the exact figures are those of the queues.
export function amount(quantity) {
  const found = /^([0-9.]+)([a-zA-Z]*)$/.exec(quantity || "0");
  return found ? Number(found[1]) * (UNITS[found[2]] || 1) : 0;
}
