/** Every key once: what it does and where. The terminal's keys, and `?` lists them. */

import { isOpen } from "./link.js";

/** @typedef {{keys: string[], shown: string, does: string, run: (ctx: import("./app.js").Context, key: string) => void,
 *   pages?: string[]}} Key */
/** `pages` are those of the address, `drawer` (what is open beside the board) and `full` (in the place of all). */
/** @type {Key[]} */
export const KEYS = [];
/** How far a key moves. @type {Readonly<Record<string, number>>} */
export const BY = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 10, PageUp: -10 };

/** @param {Key[]} keys */
export function bind(keys) {
  KEYS.push(...keys);
}

/** Run what a key does on this page; text that is typed is nobody's key.
 * @param {KeyboardEvent} event @param {import("./app.js").Context} ctx */
export function press(event, ctx) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.closest("input, textarea, select, dialog") && event.key !== "Escape") return;
  if (event.key === "Enter" && target.closest("a, button, summary")) return;
  const { page, full } = ctx.link.place;
  const open = isOpen(ctx.link.place) ? ["drawer"] : [];
  const modes = full ? ["full"] : page === "flight" ? [...open, page] : [page, ...open];
  const all = KEYS.filter((one) => one.keys.includes(event.key));
  const own = modes.flatMap((mode) => all.filter((one) => one.pages?.includes(mode)));
  const key = own[0] ?? all.find((one) => !one.pages);
  if (!key) return;
  event.preventDefault();
  key.run(ctx, event.key);
}
