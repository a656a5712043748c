/** What of a run's time is in sight, and the one time at which all charts of a page are read. */

import { bind } from "./keys.js";

const PAGES = ["curves", "heat"];

/** Times are Unix seconds. In the address `from=-60` is the newest minute, which goes on with the run. */
export class Sight {
  /** @param {import("./link.js").Link} link */
  constructor(link) {
    this.link = link;
    /** Begin and end of the run, as far as they are known. @type {[number, number]} */
    this.whole = [0, 1];
    /** The time that is read. @type {number | null} */
    this.at = null;
    /** Called with whether other times are in sight. @type {Set<(isMoved: boolean) => void>} */
    this.listeners = new Set();
    link.listen((now, before) => (now.from !== before.from || now.to !== before.to) && this.#changed(true));
  }

  /** Begin and end of what is in sight. @returns {[number, number]} */
  get span() {
    const { from, to } = this.link.place;
    const [begin, end] = this.whole;
    const last = to === "" || !Number.isFinite(+to) ? end : +to;
    const first = from === "" || !Number.isFinite(+from) ? begin : +from < 0 ? last + +from : +from;
    return last > first ? [first, last] : this.whole;
  }

  get isZoomed() {
    const { from, to } = this.link.place;
    return from !== "" || to !== "";
  }

  /** Read values at a time, or no more. @param {number | null} at */
  read(at) {
    if (at === this.at) return;
    this.at = at;
    this.#changed(false);
  }

  /** Bring other times into sight. @param {number} first @param {number} last */
  show(first, last) {
    const [begin, end] = this.whole;
    const wide = Math.min(end - begin, Math.max(last - first, 1e-4 * (end - begin), 0.1));
    const from = Math.min(Math.max(begin, (first + last - wide) / 2), end - wide);
    const isNewest = from + wide >= end - 1e-3 * wide;
    this.link.go(wide >= end - begin ? { from: "", to: "" } : isNewest ? { from: `-${wide.toFixed(1)}`, to: "" }
      : { from: from.toFixed(1), to: (from + wide).toFixed(1) }, { quiet: true });
  }

  /** So many times as much in sight, around a time. @param {number} factor @param {number} [around] */
  zoom(factor, around) {
    const [first, last] = this.span;
    const middle = around ?? this.at ?? last;
    this.show(middle - (middle - first) * factor, middle + (last - middle) * factor);
  }

  /** Earlier or later by a share of what is in sight. @param {number} share */
  move(share) {
    const [first, last] = this.span;
    this.show(first + share * (last - first), last + share * (last - first));
  }

  all() {
    this.show(...this.whole);
  }

  /** Read a hundredth of what is in sight on, or back. @param {number} by */
  step(by) {
    const [first, last] = this.span;
    const at = this.at === null ? last : this.at + (by * (last - first)) / 100;
    this.read(Math.min(last, Math.max(first, at)));
  }

  /** @param {boolean} isMoved */
  #changed(isMoved) {
    for (const listener of this.listeners) listener(isMoved);
  }
}

bind([
  { keys: ["z", "Z"], shown: "z Z", does: "the last tenth, then less; Z: all of it", pages: PAGES,
    run: ({ sight }, key) => (key === "Z" ? sight.all() : sight.zoom(sight.isZoomed ? 0.5 : 0.1)) },
  { keys: ["(", ")"], shown: "( )", does: "half of it earlier, later", pages: PAGES,
    run: ({ sight }, key) => sight.move(key === "(" ? -0.5 : 0.5) },
  { keys: ["ArrowLeft", "ArrowRight", "x"], shown: "← → x", does: "read values at one time; x: no more", pages: PAGES,
    run: ({ sight }, key) => (key === "x" ? sight.read(null) : sight.step(key === "ArrowLeft" ? -1 : 1)) },
]);
