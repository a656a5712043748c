/** Every key once: what it does and where. The terminal's keys, and `?` lists them. */

/** @typedef {{keys: string[], shown: string, does: string, run: (ctx: import("./app.js").Context, key: string) => void,
 *   pages?: string[]}} Key */
/** @type {Key[]} */
export const KEYS = [];

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
  const page = ctx.link.place.page;
  const key = KEYS.find((one) => one.keys.includes(event.key) && (!one.pages || one.pages.includes(page)));
  if (!key) return;
  event.preventDefault();
  key.run(ctx, event.key);
}
