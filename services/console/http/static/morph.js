// Makes what is drawn anew out of what is there, so that focus, selection, open menus and the place in a
// scrolled box stay where they are. Elements with the same key are the same.

const HANDLERS = ["onclick", "oninput", "onsubmit", "onscroll"];
const keyOf = (node) => node.nodeType === Node.ELEMENT_NODE
  ? node.id || node.dataset.key || node.dataset.queue || node.dataset.at || "" : "";

const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

export function morph(was, made) {
  const keyed = new Map();
  for (const child of was.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
  let at = was.firstChild;
  for (const wanted of [...made.childNodes]) {
    const known = keyed.get(keyOf(wanted));
    let here = at;
    if (known && alike(known, wanted) && known.parentNode === was) {
      if (known !== at) was.insertBefore(known, at);
      else at = at.nextSibling;
      here = known;
    } else if (at && alike(at, wanted)) {
      at = at.nextSibling;
    } else {
      was.insertBefore(wanted, at);
      continue;
    }
    become(here, wanted);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function become(was, made) {
  if (was.nodeType === Node.TEXT_NODE) {
    if (was.data !== made.data) was.data = made.data;
    return;
  }
  for (const { name } of [...was.attributes]) {
    // What a person opened stays open.
    if (!made.hasAttribute(name) && !(name === "open" && was.nodeName === "DETAILS")) was.removeAttribute(name);
  }
  for (const { name, value } of made.attributes) {
    if (was.getAttribute(name) !== value) was.setAttribute(name, value);
  }
  for (const handler of HANDLERS) if (was[handler] !== made[handler]) was[handler] = made[handler];
  if (was.dataset.keep) return;
  morph(was, made);
  if ("value" in made && ["INPUT", "SELECT"].includes(was.nodeName) && was !== document.activeElement) {
    if (was.type === "checkbox") was.checked = made.checked;
    else if (was.value !== made.value) was.value = made.value;
  }
}
