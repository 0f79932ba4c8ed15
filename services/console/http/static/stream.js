// Follows /api/v1/events, and asks the console. The token stays in this tab's session.

const TOKEN = "sluicegate.token";
const ONLY = "sluicegate.namespace";
const AGAIN_FIRST_MS = 1000;
const AGAIN_MAX_MS = 30000;
const SILENCE_MS = 45000; // The console sends a sign of life every 15 seconds.
const REFUSED = new Set([400, 401, 403]); // To ask again would not help.

export const identity = {
  token: () => sessionStorage.getItem(TOKEN),
  namespace: () => sessionStorage.getItem(ONLY) || "",
  set(token, namespace) {
    sessionStorage.setItem(TOKEN, token);
    sessionStorage.setItem(ONLY, namespace);
  },
  forget() {
    sessionStorage.removeItem(TOKEN);
  },
};

function headers() {
  const token = identity.token();
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function problemOf(response) {
  try {
    return (await response.json()).message || response.statusText;
  } catch {
    return response.statusText || `status ${response.status}`;
  }
}

// Raises `Unanswered` if the console cannot be reached, or says nothing for `milliseconds`.
export async function ask(path, body, milliseconds = SILENCE_MS) {
  const cut = new AbortController();
  const options = { headers: headers(), signal: cut.signal };
  if (body !== undefined) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  try {
    const response = await within(milliseconds, fetch(path, options));
    if (!response.ok) throw new Error(await problemOf(response));
    return JSON.parse(await within(milliseconds, response.text()));
  } catch (error) {
    cut.abort(); // A question that hangs would keep one of the browser's few connections.
    throw error;
  }
}

export class Unanswered extends Error {}

// What it comes to. A connection that was cut without a word says nothing any more.
async function within(milliseconds, coming) {
  let timer;
  const silence = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Unanswered("the console says nothing")), milliseconds);
  });
  const answer = coming.catch(() => { throw new Unanswered("the console does not answer"); });
  try {
    return await Promise.race([answer, silence]);
  } finally {
    clearTimeout(timer);
  }
}

// Calls `on.event(name, data)`, `on.state(state, text)` and `on.refused(why)`.
export class EventStream {
  constructor(on) {
    this.on = on;
    this.connection = null;
    this.again = AGAIN_FIRST_MS;
    this.timer = null;
  }

  // Try again at once, if it waits for its next try.
  hurry() {
    if (this.timer !== null) this.follow();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.connection) this.connection.abort();
    this.connection = null;
  }

  async follow() {
    this.stop();
    const mine = this.connection = new AbortController();
    this.on.state("connecting", "connecting…");
    try {
      const only = identity.namespace();
      const query = only ? `?namespace=${encodeURIComponent(only)}` : "";
      const response = await within(SILENCE_MS, fetch(`/api/v1/events${query}`, { headers: headers(), signal: mine.signal }));
      if (REFUSED.has(response.status)) {
        this.on.refused(identity.token() ? await problemOf(response) : "");
        return;
      }
      if (!response.ok) throw new Error(await problemOf(response));
      this.again = AGAIN_FIRST_MS;
      this.on.state("live", "live");
      await this.read(response.body.getReader());
      throw new Error("the connection ended");
    } catch (error) {
      if (mine.signal.aborted) return;
      mine.abort();
      this.on.state("lost", `${error.message}; again in ${Math.round(this.again / 1000)} s`);
      this.timer = setTimeout(() => this.follow(), this.again);
      this.again = Math.min(AGAIN_MAX_MS, this.again * 2);
    }
  }

  async read(reader) {
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      const { value, done } = await within(SILENCE_MS, reader.read());
      if (done) return;
      text += decoder.decode(value, { stream: true });
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        this.receive(text.slice(0, end));
        text = text.slice(end + 2);
      }
    }
  }

  receive(block) {
    let name = "message";
    const data = [];
    for (const line of block.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      if (line.startsWith("data: ")) data.push(line.slice(6));
    }
    if (!data.length) return;
    const message = JSON.parse(data.join("\n"));
    if (name !== "end") {
      this.on.event(name, message);
    } else if (REFUSED.has(message.code)) {
      this.stop();
      this.on.refused(message.message);
    } else {
      throw new Error(message.message);
    }
  }
}
