/** A run that lies in the page itself: what a collector would answer of it, as far as it was kept. */

import { ApiError } from "./source.js";

/** @import { HeatMap, History, RunList, Snapshot, Timeline } from "./types.js" */
/** `moments` and `details` (by env) are of the one run. The heat is by what it is of.
 * @typedef {{runs: RunList, moments: Snapshot[], details: Record<string, Snapshot["detail"]>,
 *   history: History, timeline: Timeline, heat: Record<string, HeatMap>}} Recorded */

/** What is kept in this page; null in one that a collector serves. @returns {Promise<import("./source.js").Door | null>} */
export async function kept() {
  const text = document.getElementById("recorded")?.textContent;
  if (!text) return null;
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  /** @type {Recorded} */
  const recorded = await new Response(plain).json();
  return {
    ask: async (path, query) => answer(recorded, path, query),
    stream(view, take) {
      queueMicrotask(() => take(moment(recorded, view)));
      return () => {};
    },
  };
}

/** @param {Recorded} recorded @param {string} path @param {import("./source.js").Query} query */
function answer(recorded, path, query) {
  if (path === "runs") return recorded.runs;
  if (path === "snapshot") return moment(recorded, query);
  if (path === "timeline") return recorded.timeline;
  if (path === "history") return past(recorded.history, query);
  const heat = path === "heat" && recorded.heat[String(query.of || "env")];
  if (heat) {
    const offset = Number(query.offset) || 0;
    return { ...heat, offset, rows: heat.rows.slice(offset, offset + (Number(query.rows) || 256)), total: heat.rows.length };
  }
  throw new ApiError(404, "this file holds one run as it was; open the recording by `overwatch web` for that");
}

/** The newest moment at or before the one that is asked for. @param {Recorded} recorded @param {import("./source.js").Query} query */
function moment(recorded, query) {
  const { moments, details } = recorded;
  const at = Number(query.at) || Infinity;
  const found = moments.findLast((one) => one.time <= at + 0.05) ?? moments[0];
  const detail = query.env && found === moments[moments.length - 1] ? (details[String(query.env)] ?? null) : found.detail;
  return { ...found, detail };
}

/** @param {History} all @param {import("./source.js").Query} query @returns {History} */
function past(all, query) {
  const [from, to] = [Number(query.from) || -Infinity, Number(query.to ?? query.at) || Infinity];
  const names = [query.name ?? []].flat();
  const curves = all.curves.filter((one) => !names.length || names.includes(one.name)).map((one) => {
    const first = one.at.findIndex((at) => at >= from);
    const [begin, end] = [first < 0 ? one.at.length : first, one.at.findLastIndex((at) => at <= to) + 1];
    const columns = { at: one.at.slice(begin, end), update: one.update.slice(begin, end) };
    return { ...one, ...columns, low: one.low.slice(begin, end), high: one.high.slice(begin, end) };
  });
  return { ...all, curves };
}
