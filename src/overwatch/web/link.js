/** The state of the page, which is its address: who opens the link sees the same. */

/** What an address may have, and what holds where it has it not. */
export const DEFAULTS = {
  page: "flight", run: "", at: "", env: "", slot: "", lane: "", finding: "", filter: "", sort: "anomaly",
  order: "desc", grouped: "yes", first: "", search: "", level: "", from: "", to: "", name: "", beside: "", of: "env",
  match: "", over: "", by: "", log: "", marked: "", full: "", theme: "", palette: "",
};
/** @typedef {typeof DEFAULTS} Place */
/** @typedef {keyof Place} Key */

/** Browsers refuse an address that changes too often, so small moves are written together. */
const WRITE_MS = 400;

export class Link {
  #due = 0;

  constructor() {
    /** @type {Place} */
    this.place = read();
    /** @type {Set<(place: Place, before: Place) => void>} */
    this.listeners = new Set();
    addEventListener("popstate", () => {
      clearTimeout(this.#due);
      this.#due = 0;
      this.#change(read());
    });
  }

  /** Go to another place; what is left out stays. A step of its own in the browser's history unless `quiet`.
   * @param {Partial<Place>} change @param {{quiet?: boolean}} [how] */
  go(change, how = {}) {
    const place = { ...this.place, ...change };
    if (href(place) === href(this.place)) return;
    if (how.quiet) {
      this.#due ||= setTimeout(() => this.#write(), WRITE_MS);
    } else {
      if (this.#due) this.#write();
      history.pushState(null, "", href(place));
    }
    this.#change(place);
  }

  /** The address of another place. @param {Partial<Place>} change */
  to(change) {
    return href({ ...this.place, ...change });
  }

  /** @param {(place: Place, before: Place) => void} listener */
  listen(listener) {
    this.listeners.add(listener);
  }

  #write() {
    clearTimeout(this.#due);
    this.#due = 0;
    history.replaceState(null, "", href(this.place));
  }

  /** @param {Place} place */
  #change(place) {
    const before = this.place;
    this.place = place;
    for (const listener of this.listeners) listener(place, before);
  }
}

/** Whether something is open beside the page. @param {Place} place */
export const isOpen = ({ env, slot, lane, finding }) => [env, slot, lane, finding].some(Boolean);

/** @returns {Place} */
function read() {
  const query = new URLSearchParams(location.search);
  const found = { ...DEFAULTS };
  for (const name of /** @type {Key[]} */ (Object.keys(DEFAULTS))) found[name] = query.get(name) ?? DEFAULTS[name];
  return found;
}

/** @param {Place} place */
function href(place) {
  const query = new URLSearchParams();
  for (const name of /** @type {Key[]} */ (Object.keys(DEFAULTS))) {
    if (place[name] !== DEFAULTS[name]) query.set(name, place[name]);
  }
  const text = query.toString();
  return text ? `?${text}` : location.pathname;
}
