// What the console has said: queues and workloads by key. `version` grows with each message.
import { key } from "/dom.js";

export const state = { queues: new Map(), workloads: new Map(), omitted: 0, fresh: new Set(), loaded: false, version: 0 };

export function clear() {
  coming = null;
  state.queues.clear();
  state.workloads.clear();
  state.fresh.clear();
  state.omitted = 0;
  state.loaded = false;
  state.version += 1;
}

// A snapshot comes in parts. While one is shown already, the next replaces it when it is whole, so that
// nobody loses their place in a list after each connection that was cut.
let coming = null;

export function apply(name, message) {
  if (name === "snapshot") coming = state.loaded ? { queues: new Map(), workloads: new Map() } : null;
  const into = coming || state;
  for (const row of message.queues) into.queues.set(key(row), row);
  for (const row of message.workloads) {
    into.workloads.set(key(row), remembering(row));
    if (name === "change") state.fresh.add(key(row));
  }
  if (name === "snapshot") state.omitted = message.omitted || 0;
  if (coming && !message.more) {
    Object.assign(state, coming);
    coming = null;
  }
  state.loaded = true;
  state.version += 1;
  for (const gone of message.gone || []) {
    (gone.what === "queue" ? state.queues : state.workloads).delete(key(gone));
  }
}

const compared = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

export const byName = (a, b) => compared(key(a), key(b));

export const clusterQueues = () => [...state.queues.values()].filter((row) => !row.namespace).sort(byName);

export const localQueues = () => [...state.queues.values()].filter((row) => row.namespace).sort(byName);

export const severalClusters = () => new Set([...state.queues.values()].map((row) => row.cluster)).size > 1;

// The cluster is named where there are several; who has one knows which it is.
export const inCluster = (row) => (severalClusters() ? ` · cluster ${row.cluster}` : "");

// The same as filters of the list of workloads.
export const filteredBy = ({ cluster, ...others }) => (severalClusters() ? { cluster, ...others } : others);

export const holds = (row) => !["PENDING", "FINISHED"].includes(row.status);

const RANK = { PENDING: 0, EVICTED: 1, QUOTARESERVED: 2, ADMITTED: 3, FINISHED: 4 };

export const inOrder = (a, b) => RANK[a.status] - RANK[b.status] || b.priority - a.priority
  || (a.status === "FINISHED" ? compared(b.createdAt, a.createdAt) : compared(a.createdAt, b.createdAt)) || byName(a, b);

export const count = (rows, ...statuses) => rows.filter((row) => statuses.includes(row.status)).length;

let known = { version: -1, rows: [] };

// Each workload once: a copy on a spoke is none of its own where its original is here, too.
export function originals() {
  if (known.version !== state.version) {
    const rows = [...state.workloads.values()];
    const named = (row) => `${row.namespace}/${row.name}`;
    const names = rows.some((row) => row.copied) ? new Set(rows.filter((row) => !row.copied).map(named)) : null;
    known = { version: state.version, rows: names ? rows.filter((row) => !row.copied || !names.has(named(row))) : rows };
  }
  return known.rows;
}

// Has quota and is not admitted yet: waits for checks, or for the end of its pods. Those that run are counted beside it.
export const onlyReserved = (row) => (row.reserving === undefined ? undefined : Math.max(0, row.reserving - (row.admitted || 0)));

// What has quota again does not say any more when it was evicted: who looks on has seen it.
function remembering(row) {
  const before = state.workloads.get(key(row));
  return row.evictedAt || !before?.evictedAt || before.createdAt !== row.createdAt ? row : { ...row, evictedAt: before.evictedAt };
}

// What happened last, the newest first: `{ row, at, what }`. Some times are whole seconds, others have a fraction: text
// is compared without the "Z", which is above ".", and what comes later in a life is the newer of one second.
export function latest(most) {
  const found = [];
  const add = (row, at, what, rank) => {
    if (!at) return;
    const order = `${at.slice(0, -1)} ${rank}`;
    if (found.length === most && order <= found[most - 1].order) return;
    found.splice(found.findLastIndex((each) => each.order >= order) + 1, 0, { row, at, what, order });
    found.length = Math.min(found.length, most);
  };
  for (const row of originals()) {
    add(row, row.createdAt, "came", 0);
    add(row, row.admittedAt, "admitted", 1);
    add(row, row.finishedAt, row.succeeded ? "succeeded" : row.succeeded === false ? "failed" : "ended", 3);
    add(row, row.evictedAt, "evicted", 2);
  }
  return found;
}
