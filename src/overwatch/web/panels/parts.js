/** Pieces that pages share: text with a meaning, labelled rows, tables, and what the history answers. */

import { attr, h, keyed, put } from "../dom.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {Partial<import("../link.js").Place>} To */
/** `to`: a link to that place. `href`: one to elsewhere. `is`, `glyph`: its colour, beside the word or glyph in it.
 * @typedef {{text: string, to?: To, href?: string, is?: string, glyph?: string}} Said */
/** @typedef {string | Said} Cell */
/** @typedef {[string, Cell | readonly Cell[]]} Row */

const SEVERITIES = { critical: "CRIT", warning: "WARN", info: "INFO", debug: "DBUG", ok: "OK" };
/** What an address has not while nothing is open. */
export const CLOSED = { env: "", slot: "", lane: "", finding: "" };
const AGAIN_MS = 15000;

/** @param {string} word */
export const severity = (word) => SEVERITIES[/** @type {"ok"} */ (word)] ?? word.toUpperCase().slice(0, 4);
/** @param {string} word */
export const status = (word) => (word === "unknown" ? word : word.toUpperCase());
/** `key=value`, in quotes where it has blanks. @param {Readonly<Record<string, string>>} fields */
export const pairs = (fields) => Object.entries(fields).map(([name, value]) =>
  `${name}=${!value || value.includes(" ") ? `'${value}'` : value}`);

/** @type {WeakMap<Element, To>} */
const PLACES = new WeakMap();

/** A link to another place, which keeps the rest of this one. @param {Context} ctx @param {To} to @param {string} text */
export function jump(ctx, to, text) {
  const node = h("a", { href: ctx.link.to(to), onclick: ctx.follow(() => PLACES.get(node) ?? to) }, text);
  return node;
}

/** Put a cell into a node that stays. @param {Context} ctx @param {Element} node @param {Cell} cell */
export function show(ctx, node, cell) {
  const { text, to, href, is, glyph } = typeof cell === "string" ? /** @type {Said} */ ({ text: cell }) : cell;
  attr(node, "data-is", is);
  attr(node, "data-glyph", glyph);
  if (!to && !href) return put(node, text);
  let link = node.firstElementChild;
  if (link?.tagName !== "A") {
    link = to ? jump(ctx, to, "") : h("a", { rel: "noopener noreferrer", target: "_blank" });
    node.replaceChildren(link);
  }
  put(link, text);
  attr(link, "href", to ? ctx.link.to(to) : href);
  if (to) PLACES.set(link, to);
}

/** Labelled rows of some lines each; a row without one is not there. @param {Context} ctx */
export function facts(ctx) {
  const node = h("dl", { class: "facts" });
  const isText = (/** @type {Cell} */ one) => (typeof one === "string" ? one : one.text) !== "";
  /** @param {Row[]} rows */
  function update(rows) {
    const known = rows.map(([label, cells]) => ({ label, cells: /** @type {Cell[]} */ ([cells]).flat().filter(isText) }));
    keyed(node, known.filter(({ cells }) => cells.length), ({ label }) => label, ({ label }) => {
      const lines = h("dd");
      return { node: h("div", {}, h("dt", {}, label), lines), update: ({ cells }) =>
        keyed(lines, cells, (_, place) => place, () => {
          const line = h("p");
          return { node: line, update: (cell) => show(ctx, line, cell) };
        }) };
    });
  }
  return { node, update };
}

/** A table that is hidden while it has no rows. A column: its head, its cell of a row, its class.
 * @template T @param {Context} ctx @param {string} title @param {[string, (row: T) => Cell, string?][]} columns
 * @param {(row: T, place: number) => unknown} key */
export function table(ctx, title, columns, key) {
  const body = h("tbody");
  const heads = columns.map(([name, , kind]) => h(name ? "th" : "td", { scope: name ? "col" : null, class: kind }, name));
  const node = h("div", { class: "list", role: "group", "aria-label": title, tabindex: 0 },
    h("table", {}, h("caption", {}, title), h("thead", {}, h("tr", {}, heads)), body));
  /** @param {readonly T[]} rows */
  function update(rows) {
    attr(node, "hidden", !rows.length);
    keyed(body, rows, key, () => {
      const cells = columns.map(([, , kind]) => h("td", { class: kind }));
      return { node: h("tr", {}, cells), update: (row) =>
        columns.forEach(([, of], place) => show(ctx, cells[place], of(row))) };
    });
  }
  return { node, update };
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
    ctx.source.history({ ...query, run, at }).then(
      (answer) => wanted === about && Object.assign(found, { answer, error: "" }),
      (error) => Object.assign(found, { error: error.message }),
    ).then(ctx.redraw);
    return found;
  };
}
