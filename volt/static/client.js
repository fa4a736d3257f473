// What the page asks of Volt.

const PATIENCE = 5000; // ms
const KEY = "volt-token";

// Volt answered, but not with what was asked for.
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// Volt did not answer, or had a fault.
export class Silent extends Error {}

export class Client {
  #known = new Map(); // path -> {etag, body}

  get token() {
    return sessionStorage.getItem(KEY) ?? "";
  }

  set token(token) {
    this.#known.clear();
    if (token) sessionStorage.setItem(KEY, token);
    else sessionStorage.removeItem(KEY);
  }

  // Returns the body and whether it is another than the last; `full` fetches it in any case.
  async get(path, full = false) {
    const last = this.#known.get(path);
    const headers = { Accept: "application/json" };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    if (last && !full) headers["If-None-Match"] = last.etag;
    const answer = await this.#ask(path, headers);
    if (answer.status === 304) return { body: last.body, changed: false };
    const body = await answer.json().catch(() => null);
    if (answer.status >= 500 || body === null) throw new Silent(`status ${answer.status}`);
    if (!answer.ok) {
      throw new Refused(answer.status, body.error?.code, body.error?.message ?? answer.statusText);
    }
    const etag = answer.headers.get("ETag");
    if (etag) this.#known.set(path, { etag, body });
    return { body, changed: true };
  }

  // Returns all things of a list, page by page.
  async all(path, noun) {
    const found = [];
    let marker = null;
    do {
      const query = marker === null ? "" : `&marker=${encodeURIComponent(marker)}`;
      const { body } = await this.get(`${path}?limit=1000${query}`);
      found.push(...body[noun]);
      marker = body.next;
    } while (marker !== null);
    return found;
  }

  async #ask(path, headers) {
    try {
      return await fetch(path, {
        headers,
        cache: "no-store",
        credentials: "same-origin",
        signal: AbortSignal.timeout(PATIENCE),
      });
    } catch (error) {
      throw new Silent(error.message);
    }
  }
}
