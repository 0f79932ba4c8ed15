// What a page asks the console for, beside the events: kept, and asked again while the page is open.
import { ask } from "/stream.js";

const kept = new Map();

// `{ answer, problem }` of a path, of which each may be undefined. The page is drawn again when it changes.
export function asked(path, everyMs = 4500) {
  const known = kept.get(path) || { asked: 0, busy: false };
  kept.set(path, known);
  if (!known.busy && Date.now() - known.asked >= everyMs) renew(path, known);
  return known;
}

export function forget() {
  kept.clear();
}

async function renew(path, known) {
  known.busy = true;
  try {
    known.answer = await ask(path);
    known.problem = undefined;
  } catch (error) {
    known.problem = error.message;
  }
  known.busy = false;
  known.asked = Date.now();
  if (kept.get(path) === known) document.dispatchEvent(new Event("redraw"));
}
