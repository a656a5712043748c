/** One line of the board as elements: made once, then filled with whichever lane, env or fold comes into sight. */

import * as chips from "./chips.js";
import { attr, h, put } from "./dom.js";
import { about, dots, hiddenWords } from "./rows.js";

/** @import { Column, Line } from "./rows.js" */
/** @import { Snapshot } from "./types.js" */
/** What all lines have in common. @typedef {{columns: Column[], heads: readonly string[], hasSlots: boolean}} Shape */
/** @typedef {{node: HTMLElement, parts: Record<string, HTMLElement>}} Row */
/** @typedef {{at: number, isHere: boolean, isOpen: boolean, isOld: boolean, isMarked: boolean}} How */

let made = 0;

/** @param {Shape} shape @returns {Row} */
export function makeRow({ columns, hasSlots }) {
  /** @type {Record<string, HTMLElement>} */
  const parts = {};
  const label = ["mark", "on", "bound", "about"].map((name) => (parts[`lane ${name}`] = h("span", { class: `b-${name}` })));
  const names = [...columns.map(({ name }) => name), ...(hasSlots ? ["slots"] : [])];
  const cells = names.map((name) => (parts[name] = h("span", { class: `b-${name}`, role: "gridcell" })));
  made += 1;
  return { parts, node: h("div", { class: "b-line", role: "row", id: `board-${made}` },
    h("span", { class: "b-label", role: "gridcell" }, ...label.flatMap((part) => [part, " "])), ...cells) };
}

/** @param {Row} row @param {Line} line @param {Snapshot} snapshot @param {Shape} shape @param {How} how */
export function fill({ node, parts }, line, snapshot, shape, { at, isHere, isOpen, isOld, isMarked }) {
  const { kind, section, env } = line;
  attr(node, "data-kind", kind);
  attr(node, "aria-rowindex", at + 2);
  attr(node, "aria-selected", isHere ? "true" : null);
  attr(node, "data-open", isOpen);
  attr(node, "data-marked", isMarked);
  attr(node, "data-status", env?.status);
  attr(node, "data-old", env !== null && (isOld || env.stale));
  if (kind !== "env") fillLabel(parts, line, snapshot);
  for (const column of shape.columns) {
    const cell = parts[column.name];
    const text = env ? column.text(env) : kind === "head" && section.group && column.group ? column.group(section.group) : "";
    // A row that scrolled into sight and has not come yet.
    put(cell, column.name !== "env" || kind !== "env" ? text : env ? text + (isMarked ? "*" : "") : "…");
    if (column.name === "why") attr(cell, "title", text);
  }
  if (parts.slots) fillSlots(parts.slots, line, snapshot, shape.heads);
}

/** @param {Record<string, HTMLElement>} parts @param {Line} line @param {Snapshot} snapshot */
function fillLabel(parts, { kind, section }, snapshot) {
  const { group, isOpen } = section;
  const isHead = kind === "head";
  const bound = isHead ? snapshot.system.gpus.find((one) => one.gpu_id === group?.gpu_id)?.bound : null;
  put(parts["lane mark"], isHead ? (isOpen ? "▾" : "▸") : "+");
  put(parts["lane on"], isHead ? group?.gpu_id ?? "all" : "");
  put(parts["lane bound"], bound ? `${bound.state} ${bound.mark}`.trim() : "");
  attr(parts["lane bound"], "data-mark", bound?.mark);
  put(parts["lane about"], group ? (isHead ? about(group) : hiddenWords(section, snapshot)) : "");
}

/** @param {HTMLElement} cell @param {Line} line @param {Snapshot} snapshot @param {readonly string[]} heads */
function fillSlots(cell, { env }, { run }, heads) {
  const { names, more } = env ? (heads.length ? { names: heads, more: 0 } : dots(env, run.slots)) : { names: [], more: 0 };
  while (cell.children.length < names.length + 1) cell.append(h("span", { class: heads.length ? "b-chip" : "b-dot" }));
  for (let place = 0; place < cell.children.length; place += 1) {
    const [node, name] = [cell.children[place], names[place]];
    const slot = env?.slots[name];
    const text = slot ? chips.chip(slot, run.blueprints) : name === undefined ? "" : "–";
    put(node, place === names.length && more ? `+${more}` : heads.length ? text : text.slice(0, 1));
    attr(node, "data-tone", slot ? chips.tone(slot.stage) : null);
    attr(node, "title", slot ? chips.words(name, slot) : null);
  }
}
