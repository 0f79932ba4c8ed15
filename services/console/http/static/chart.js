// Charts of the recent past, and how far back they go.
import { element } from "/dom.js";
import { asked } from "/asked.js";

export const SPANS = { "1h": "last hour", "24h": "last 24 hours", "7d": "last 7 days" };
const GROWING_MS = 500;
const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [600, 120];

export const spanOf = (query) => (query.get("span") in SPANS ? query.get("span") : "24h");

// `more`: what else stays in the address.
export const choice = (path, span, more = "") => element("ul", { class: "choice", "aria-label": "How far back" }, Object.entries(SPANS).map(([name, title]) =>
  element("li", {}, element("a", { href: `${path}?span=${name}${more}`, "aria-current": name === span ? "true" : null }, title))));

const soon = new Map();

// Asks once more, and once more draws, while somebody is on this page.
export function again(path) {
  const here = location.pathname;
  clearTimeout(soon.get(path));
  soon.set(path, setTimeout(() => {
    soon.delete(path);
    if (location.pathname === here) asked(path, GROWING_MS);
  }, GROWING_MS));
}

export const time = (at) => at.replace("T", " ").slice(0, 16);

export const told = (seconds) => (seconds < 120 ? `${Math.round(seconds)} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 360) / 10} h`);

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
