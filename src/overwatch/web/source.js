/** Where snapshots come from: the view API of the collector that served the page. Read-only but for acknowledging. */

/** @import { HeatMap, History, RunList, Snapshot, Timeline } from "./types.js" */
/** What is answered, by its path.
 * @typedef {{runs: RunList, history: History, timeline: Timeline, snapshot: Snapshot, heat: HeatMap}} Answers */
/** @typedef {{state: "connecting" | "up" | "down" | "refused", reason: string, since: number}} Connection */

/** @typedef {Record<string, string | string[]>} Query */
/** What answers: a collector, or the file itself. `stream` gives a closer; `closed` is called unless that was.
 * @typedef {{ask: (path: string, query: Query, how: RequestInit) => Promise<any>,
 *   stream: (view: Record<string, string>, take: (snapshot: Snapshot) => void, closed: (reason: string) => void) => () => void}} Door */

const OLD = ["stale", "silent", "lost"];
/** Another env is asked for at once, further ones when the key has rested so long. */
const REST_MS = 150;
const RETRY_MS = [500, 1000, 2000, 5000, 10000];

export class ApiError extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The collector that served the page. @type {Door} */
export const COLLECTOR = {
  async ask(path, query, how) {
    const words = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      for (const one of Array.isArray(value) ? value : [value]) if (one !== "") words.append(name, one);
    }
    const text = words.toString();
    const answer = await fetch(`/api/v1/${path}${text ? `?${text}` : ""}`, { credentials: "same-origin", ...how });
    const body = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new ApiError(answer.status, body.error ?? `HTTP ${answer.status}`);
    return body;
  },
  stream(view, take, closed) {
    const address = new URL("/api/v1/stream", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    for (const [name, value] of Object.entries(view)) if (value !== "") address.searchParams.set(name, value);
    const socket = new WebSocket(address);
    socket.onmessage = (event) => take(JSON.parse(event.data));
    socket.onclose = (event) => closed(event.reason);
    return () => {
      socket.onmessage = socket.onclose = null;
      // To close one before it is open is an error to the browser.
      if (socket.readyState === WebSocket.CONNECTING) socket.onopen = () => socket.close();
      else socket.close();
    };
  },
};

export class Source {
  /** @param {Door} door @param {(snapshot: Snapshot) => void} onSnapshot
   * @param {(connection: Connection) => void} onConnection */
  constructor(door, onSnapshot, onConnection) {
    this.door = door;
    this.onSnapshot = onSnapshot;
    this.onConnection = onConnection;
    /** @type {Connection} */
    this.connection = { state: "connecting", reason: "", since: Date.now() };
    /** @type {Record<string, string>} */
    this.view = {};
    this.close = () => {};
    this.tries = 0;
    this.turn = 0;
    this.rest = 0;
    this.stepped = -Infinity;
    /** Whether a moment was asked for and has not come. */
    this.isWaiting = false;
    addEventListener("online", () => this.again());
  }

  /** Whether values are marked as old. @param {Snapshot} snapshot */
  isOld(snapshot) {
    return this.connection.state !== "up" || OLD.includes(snapshot.link.state);
  }

  /** Show another view: parameters of the view API, with `at` where a moment of the past is wanted.
   * @param {Record<string, string>} view */
  show(view) {
    if (this.turn && JSON.stringify(view) === JSON.stringify(this.view)) return;
    const isStep = this.turn > 0 && JSON.stringify({ ...this.view, env: view.env }) === JSON.stringify(view);
    const wait = isStep && performance.now() < this.stepped + REST_MS ? REST_MS : 0;
    this.stepped = isStep ? performance.now() : -Infinity;
    this.view = view;
    this.tries = 0;
    clearTimeout(this.rest);
    if (wait) this.rest = setTimeout(() => this.again(), wait);
    else this.again();
  }

  /** @template {string} P @param {P} path @param {Query} [query] @param {RequestInit} [how]
   * @returns {Promise<P extends keyof Answers ? Answers[P] : unknown>} */
  ask(path, query = {}, how = {}) {
    return this.door.ask(path, query, how);
  }

  /** Begin anew, e.g. with another token. */
  again() {
    clearTimeout(this.rest);
    this.turn += 1;
    this.close();
    this.close = () => {};
    if (this.view.at) void this.#moment(this.turn);
    else this.#stream(this.turn);
  }

  /** @param {number} turn */
  async #moment(turn) {
    this.isWaiting = true;
    try {
      const snapshot = await this.ask("snapshot", this.view);
      if (turn !== this.turn) return;
      this.isWaiting = false;
      this.#set("up", "");
      this.onSnapshot(snapshot);
    } catch (error) {
      if (turn !== this.turn) return;
      this.isWaiting = false;
      this.#failed(error, turn);
    }
  }

  /** @param {number} turn */
  #stream(turn) {
    this.close = this.door.stream(this.view, (snapshot) => {
      this.tries = 0;
      this.#set("up", "");
      this.onSnapshot(snapshot);
    }, async (reason) => {
      let why = new Error(reason || "the collector does not answer");
      // A socket that is refused gives no reason; the same request over HTTP does.
      if (this.connection.state !== "up") why = await this.ask("snapshot", this.view).then(() => why, (error) => error);
      if (turn === this.turn) this.#failed(why, turn);
    });
  }

  /** @param {unknown} error @param {number} turn */
  #failed(error, turn) {
    const status = error instanceof ApiError ? error.status : 0;
    this.#set(status === 401 || status === 403 ? "refused" : "down", error instanceof Error ? error.message : "");
    const wait = RETRY_MS[Math.min(this.tries, RETRY_MS.length - 1)];
    this.tries += 1;
    setTimeout(() => turn === this.turn && this.again(), wait * (0.8 + 0.4 * Math.random()));
  }

  /** @param {Connection["state"]} state @param {string} reason */
  #set(state, reason) {
    if (state === this.connection.state && reason === this.connection.reason) return;
    const since = state === this.connection.state ? this.connection.since : Date.now();
    this.connection = { state, reason, since };
    this.onConnection(this.connection);
  }
}
