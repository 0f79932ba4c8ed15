// What a page asks the console for, beside the events: kept, and asked again while the page is open.
import { element, redraw, since } from "/dom.js";
import { ask } from "/stream.js";

const kept = new Map();

const SOON_MS = 1000;

// `{ answer, problem, at }` of a path, of which each may be undefined: with a `problem`, `answer` is the last one there
// was, of the time `at`. A problem is asked again like an answer. The page is drawn again when it changes.
// `changedAt`: when something changed that the answer tells of.
export function asked(path, everyMs = 4500, changedAt = 0) {
  const known = kept.get(path) || { asked: 0, busy: false };
  kept.set(path, known);
  if (!known.busy && Date.now() - known.asked >= (known.asked <= changedAt ? SOON_MS : everyMs)) renew(path, known);
  return known;
}

// What a page says where what it shows is old or missing; null: it is neither.
export function doubt(what, { answer, problem: why, at }) {
  if (!why) return null;
  const told = answer === undefined ? [`${what} is not known: `] : [`${what} is shown as it was `, since(new Date(at).toISOString()), " ago: "];
  return element("p", { class: "problem", "data-at": `doubt: ${what}` }, ...told, why);
}

export function forget() {
  kept.clear();
}

async function renew(path, known) {
  const isFirst = known.answer === undefined && known.problem === undefined;
  known.busy = true;
  const at = known.asked = Date.now(); // What changes from now on may not be in the answer.
  try {
    Object.assign(known, { answer: await ask(path), problem: undefined, at });
  } catch (error) {
    known.problem = error.message;
  }
  known.busy = false;
  if (kept.get(path) === known) redraw(isFirst);
}
