/** Pieces that pages share: text with a meaning, labelled rows, tables, and what the history answers. */

import { attr, h, keyed, put } from "../dom.js";

/** @import { Context } from "../app.js" */
/** @typedef {Partial<import("../link.js").Place>} To */
/** `to`: a link to that place. `href`: one to elsewhere. `is`, `glyph`: its colour, beside the word or glyph in it.
 * @typedef {{text: string, to?: To, href?: string, is?: string, glyph?: string, isHere?: boolean}} Said */
/** @typedef {string | Said} Cell */
/** @typedef {[string, Cell | readonly Cell[]]} Row */

const SEVERITIES = { critical: "CRIT", warning: "WARN", info: "INFO", debug: "DBUG", ok: "OK", absent: "" };
/** What an address has not while nothing is open. */
export const CLOSED = { env: "", slot: "", lane: "", finding: "" };
const AGAIN_MS = 15000;

/** @param {string} word */
export const severity = (word) => SEVERITIES[/** @type {"ok"} */ (word)] ?? word.toUpperCase().slice(0, 4);
/** `key=value`, in quotes where it has blanks. @param {Readonly<Record<string, string>>} fields */
export const pairs = (fields) => Object.entries(fields).map(([name, value]) =>
  `${name}=${!value || value.includes(" ") ? `'${value}'` : value}`);

/** @type {WeakMap<Element, To>} */
const PLACES = new WeakMap();

/** A link to another place, which keeps the rest of this one; it stays a link for new tabs.
 * @param {Context} ctx @param {To} to @param {...(string | Node)} inside */
export function jump(ctx, to, ...inside) {
  const node = h("a", { onclick: (/** @type {MouseEvent} */ event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    ctx.link.go(/** @type {To} */ (PLACES.get(node)));
  } }, ...inside);
  aim(ctx, node, to);
  return node;
}

/** Where a link leads from here. @param {Context} ctx @param {Element} link @param {To} to */
export function aim(ctx, link, to) {
  PLACES.set(link, to);
  attr(link, "href", ctx.link.to(to));
}

/** Put a cell into a node that stays. @param {Context} ctx @param {Element} node @param {Cell} cell */
export function show(ctx, node, cell) {
  const { text, to, href, is, glyph, isHere = null } = typeof cell === "string" ? /** @type {Said} */ ({ text: cell }) : cell;
  attr(node, "data-is", is);
  attr(node, "data-glyph", glyph);
  if (!to && !href) return put(node, text);
  let link = node.firstElementChild;
  if (link?.tagName !== "A") {
    link = to ? jump(ctx, to, "") : h("a", { rel: "noopener noreferrer", target: "_blank" });
    node.replaceChildren(link);
  }
  put(link, text);
  if (to) aim(ctx, link, to);
  else attr(link, "href", href);
  attr(link, "aria-current", isHere);
}

/** A button that shows by `update` whether it is on. @param {string} text @param {() => void} does */
export function button(text, does) {
  const node = h("button", { type: "button", onclick: does }, text);
  return { node, update: (/** @type {boolean} */ isOn) => attr(node, "aria-pressed", String(isOn)) };
}

/** A field for a part of the address. @param {Context} ctx @param {"match" | "search"} name
 * @param {import("../dom.js").Attributes} how */
export function searched(ctx, name, how) {
  const node = /** @type {HTMLInputElement} */ (h("input", { ...how, id: name, type: "search",
    oninput: () => ctx.link.go({ [name]: node.value }, { quiet: true }) }));
  return { node, update: () => {
    if (node.value !== ctx.link.place[name]) node.value = ctx.link.place[name];
  } };
}

/** Labelled rows of some lines each; a row without one is not there. @param {Context} ctx */
export function facts(ctx) {
  const node = h("dl", { class: "facts" });
  const isText = (/** @type {Cell} */ one) => (typeof one === "string" ? one : one.text) !== "";
  return { node, update: (/** @type {Row[]} */ rows) => {
    const known = rows.map(([label, cells]) => ({ label, cells: /** @type {Cell[]} */ ([cells]).flat().filter(isText) }));
    keyed(node, known.filter(({ cells }) => cells.length), ({ label }) => label, ({ label }) => {
      const lines = h("dd");
      return { node: h("div", {}, h("dt", {}, label), lines), update: ({ cells }) =>
        keyed(lines, cells, (_, place) => place, () => {
          const line = h("p");
          return { node: line, update: (cell) => show(ctx, line, cell) };
        }) };
    });
  } };
}

/** A table that is hidden while it has no rows. A column: its head, its cell of a row, its class.
 * @template T @param {Context} ctx @param {string} title @param {[string, (row: T) => Cell, string?][]} columns
 * @param {(row: T, place: number) => unknown} key */
export function table(ctx, title, columns, key) {
  const body = h("tbody");
  const heads = columns.map(([name, , kind]) => h(name ? "th" : "td", { scope: name ? "col" : null, class: kind }, name));
  const node = h("div", { class: "list", role: "group", "aria-label": title, tabindex: 0, hidden: true },
    h("table", {}, h("caption", {}, title), h("thead", {}, h("tr", {}, heads)), body));
  return { node, update: (/** @type {readonly T[]} */ rows) => {
    attr(node, "hidden", !rows.length);
    keyed(body, rows, key, () => {
      const cells = columns.map(([, , kind]) => h("td", { class: kind }));
      return { node: h("tr", {}, cells), update: (row) =>
        columns.forEach(([, of], place) => show(ctx, cells[place], of(row))) };
    });
  } };
}

/** Calls at most once in so many milliseconds, but at once for something else.
 * @param {number} ms @param {(about: string) => void} call */
export function polled(ms, call) {
  let [last, next] = ["", 0];
  return (about = "") => {
    if (about === last && performance.now() < next) return;
    [last, next] = [about, performance.now() + ms];
    call(about);
  };
}

/** What the history answers, asked again now and then while it is looked at.
 * @param {Context} ctx @param {Record<string, string>} query */
export function asked(ctx, query) {
  let [about, next] = ["", 0];
  const found = { error: "", answer: /** @type {import("../types.js").History | null} */ (null) };
  /** @param {string} run */
  return (run) => {
    const { at } = ctx.link.place;
    const wanted = `${run} ${at}`;
    if (wanted !== about) found.answer = null;
    else if (Date.now() < next) return found;
    [about, next] = [wanted, Date.now() + AGAIN_MS];
    ctx.source.ask("history", { ...query, run, at }).then(
      (answer) => wanted === about && Object.assign(found, { answer, error: "" }),
      (error) => Object.assign(found, { error: error.message }),
    ).then(ctx.redraw);
    return found;
  };
}
