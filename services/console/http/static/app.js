// The console's page: routes of the address, signing in, and drawing. Nothing is written anywhere.
import { clear, count, apply, originals, state } from "/state.js";
import { EventStream, identity } from "/stream.js";
import { element, note, retime } from "/dom.js";
import { begin, finish, offered } from "/signing.js";
import { morph } from "/morph.js";
import { forget } from "/asked.js";
import { machines, platform, spoke, spokes } from "/pages/places.js";
import { cohort, flavor } from "/pages/quota.js";
import { history as past } from "/pages/history.js";
import { clusterQueue, localQueue } from "/pages/queue.js";
import { namespace, namespaces } from "/pages/namespaces.js";
import { overview } from "/pages/overview.js";
import { whatIf } from "/pages/whatif.js";
import { workload } from "/pages/workload.js";
import { workloads } from "/pages/workloads.js";

const REPAINT_MS = 1000; // However much changes, a page repaints at most once a second.
const AGAIN_MS = 5000; // Ages and reasons are at most this old.

const ROUTES = {
  "": () => overview(),
  workloads: (parts, query) => (parts.length === 3 ? workload(...parts) : workloads(query)),
  clusterqueues: (parts, query) => clusterQueue(query, ...parts),
  localqueues: (parts, query) => localQueue(query, ...parts),
  cohorts: (parts) => cohort(...parts),
  flavors: (parts) => flavor(...parts),
  spokes: (parts) => (parts.length ? spoke(...parts) : spokes()),
  history: (_parts, query) => past(query),
  machines: (parts) => (parts.length ? platform(...parts) : machines()),
  namespaces: (parts) => (parts.length ? namespace(parts[0]) : namespaces()),
  "what-if": (_parts, query) => whatIf(query),
};
const TITLES = { "": "Overview", workloads: "Workloads", namespaces: "Namespaces", spokes: "Spokes", machines: "Machines", history: "History", "what-if": "What if" };

const byId = (id) => document.getElementById(id);
let drawn = 0;
let timer = null;
let shownPath = null;

// --- drawing ---------------------------------------------------------------------------------------

function drawSoon() {
  if (timer === null) timer = setTimeout(draw, Math.max(0, REPAINT_MS - (Date.now() - drawn)));
}

function draw() {
  clearTimeout(timer);
  timer = null;
  if (document.hidden) return; // It is drawn when somebody looks.
  drawn = Date.now();
  const rows = originals();
  byId("totals").textContent = state.loaded ? `${count(rows, "PENDING")} waiting · ${count(rows, "ADMITTED")} running` : "";
  const [first, ...parts] = location.pathname.split("/").slice(1).map(decoded);
  const route = ROUTES[first];
  const made = element("div");
  const shown = !state.loaded ? [note("reading…")]
    : route ? route(parts, new URLSearchParams(location.search)) : [element("h2", {}, "There is no such page")];
  made.append(...shown.flat().filter(Boolean));
  const view = byId("view");
  const heading = made.querySelector("h2")?.textContent;
  document.title = `${TITLES[parts.length ? null : first] || heading || "Console"} · Sluicegate`;
  // Another page is another content; the same page keeps what a person holds on to.
  if (shownPath === location.pathname) morph(view, made);
  else view.replaceChildren(...made.childNodes);
  shownPath = location.pathname;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.pathname === `/${first}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  state.fresh.clear();
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// --- the address -----------------------------------------------------------------------------------

function goTo(path) {
  history.pushState(null, "", path);
  scrollTo(0, 0);
  draw();
  byId("view").focus({ preventScroll: true });
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='/']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  goTo(link.getAttribute("href"));
});
addEventListener("popstate", draw);
document.addEventListener("redraw", draw);
document.addEventListener("changed", drawSoon);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) stream.hurry();
  draw();
});
addEventListener("online", () => stream.hurry());

// --- signing in ------------------------------------------------------------------------------------

const stream = new EventStream({
  event(name, message) {
    const isFirst = !state.loaded;
    apply(name, message);
    if (isFirst) draw();
    else drawSoon();
  },
  state(how, text) {
    if (how === "live") signedIn(true);
    const shown = byId("connection");
    shown.dataset.state = how;
    shown.textContent = text;
  },
  refused: signIn,
});

function signIn(why) {
  byId("connection").dataset.state = "lost";
  byId("connection").textContent = "not signed in";
  byId("signin-why").textContent = why;
  byId("signin-why").hidden = !why;
  clear();
  forget();
  draw();
  signedIn(false);
  (byId("provider").hidden ? byId("token") : byId("provider")).focus();
}

function signedIn(yes) {
  byId("signin").hidden = yes;
  byId("sign").hidden = !yes || !identity.token();
  for (const part of document.querySelectorAll("[data-for='signed-in']")) part.hidden = !yes;
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  identity.set(byId("token").value.trim(), byId("only").value.trim());
  byId("token").value = "";
  stream.follow();
});
byId("sign").addEventListener("click", () => {
  identity.forget();
  byId("only").value = identity.namespace();
  stream.stop();
  byId("sign").hidden = true;
  signIn("");
});

setInterval(() => {
  retime(document);
  if (state.loaded) drawSoon();
}, AGAIN_MS);

// A provider may be offered, and this may be the way back from it.
async function start() {
  const provider = await offered().catch(() => null);
  byId("provider").hidden = !provider;
  byId("provider").addEventListener("click", () => begin(provider).catch((error) => signIn(error.message)));
  if (provider && location.pathname === provider.callback) {
    try {
      await finish(provider);
    } catch (error) {
      signIn(error.message);
      return;
    }
  }
  stream.follow();
}

start();
