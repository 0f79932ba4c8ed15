// The recent past: admissions, preemptions and waits by priority, counted by the console from the logs.
import { asking, element, note, number, problem, section, table } from "/dom.js";
import { asked } from "/asked.js";

export const SPANS = { "1h": "last hour", "24h": "last 24 hours", "7d": "last 7 days" };
const GROWING_MS = 500;
const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [600, 120];

export function history(query) {
  const span = spanOf(query);
  const path = `/api/v1/trends?span=${span}`;
  const { answer, problem: why } = asked(path);
  // While the logs are read the figures grow: the page follows them.
  if (answer && !answer.complete) again(path);
  const reading = answer && !answer.complete
    ? `The logs are being read${answer.readUntil ? `, up to ${time(answer.readUntil)}` : ""}: the figures grow still.` : "";
  return [element("h2", {}, "History"), element("div", { class: "row" }, choice("/history", span), element("p", { class: "sub", role: "status" }, reading)), why ? problem(why) : null, ...(answer ? shown(answer) : why ? [] : [asking()])];
}

export const spanOf = (query) => (query.get("span") in SPANS ? query.get("span") : "24h");

export const choice = (path, span) => element("ul", { class: "choice", "aria-label": "How far back" }, Object.entries(SPANS).map(([name, title]) =>
  element("li", {}, element("a", { href: `${path}?span=${name}`, "aria-current": name === span ? "true" : null }, title))));

let soon = null;

// Asks once more, and once more draws, while somebody is on this page.
export function again(path) {
  const here = location.pathname;
  clearTimeout(soon);
  soon = setTimeout(() => { if (location.pathname === here) asked(path, GROWING_MS); }, GROWING_MS);
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

const time = (at) => at.replace("T", " ").slice(0, 16);

const told = (seconds) => (seconds < 120 ? `${Math.round(seconds)} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 360) / 10} h`);

function drawn(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  return made;
}

// A bar for each point, and beside the picture what its height means.
export function chart(label, points, value, kind, worded = String) {
  const most = Math.max(...points.map(value), 0);
  const step = WIDTH / points.length;
  const picture = drawn("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${label}: at most ${worded(most)} between ${time(points[0].at)} and ${time(points.at(-1).at)}` });
  picture.append(drawn("rect", { class: "room", x: 0, y: HEIGHT - 1, width: WIDTH, height: 1 }));
  points.forEach((point, at) => {
    const height = most ? (HEIGHT - 2) * value(point) / most : 0;
    if (height) picture.append(drawn("rect", { class: kind, x: at * step + step * 0.1, y: HEIGHT - height, width: step * 0.8, height }));
  });
  return element("figure", { class: "history" }, element("figcaption", {}, `${worded(most)}`), picture,
    element("p", { class: "sub ends" }, element("span", {}, time(points[0].at)), element("span", {}, time(points.at(-1).at))));
}
