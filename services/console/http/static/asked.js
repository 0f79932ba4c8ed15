// What a page asks the console for, beside the events: kept, and asked again while the page is open.
import { redraw } from "/dom.js";
import { ask } from "/stream.js";

const kept = new Map();

const SOON_MS = 1000;

// `{ answer, problem }` of a path, of which each may be undefined. The page is drawn again when it changes.
// `changedAt`: when something changed that the answer tells of.
export function asked(path, everyMs = 4500, changedAt = 0) {
  const known = kept.get(path) || { asked: 0, busy: false };
  kept.set(path, known);
  if (!known.busy && Date.now() - known.asked >= (known.asked <= changedAt ? SOON_MS : everyMs)) renew(path, known);
  return known;
}

export function forget() {
  kept.clear();
}

async function renew(path, known) {
  const isFirst = known.answer === undefined && known.problem === undefined;
  known.busy = true;
  known.asked = Date.now(); // What changes from now on may not be in the answer.
  try {
    known.answer = await ask(path);
    known.problem = undefined;
  } catch (error) {
    known.problem = error.message;
  }
  known.busy = false;
  if (kept.get(path) === known) redraw(isFirst);
}
