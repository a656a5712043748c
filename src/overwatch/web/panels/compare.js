/** This run beside another: both verdicts, every reading of both, and what differs in their settings. */

import { h, keyed, put } from "../dom.js";
import { ABSENT, duration, whole } from "../format.js";
import { aim, jump, polled, table } from "./parts.js";

/** @import { Snapshot } from "../types.js" */
/** @typedef {{name: string, label: string, a: string, b: string, by: string, differs: boolean}} Row */

const EVERY_MS = 2000;

/** Every reading of both, in the order of the first. @param {Snapshot} a @param {Snapshot} b @returns {Row[]} */
function readings(a, b) {
  const names = [...new Set([...Object.keys(a.policy), ...Object.keys(b.policy)])];
  return names.map((name) => {
    const [one, other] = [a.policy[name], b.policy[name]];
    const by = one?.value == null || other?.value == null ? null : other.value - one.value;
    const shown = by === null ? ABSENT : by === 0 ? "same" : `${by > 0 ? "+" : ""}${by.toPrecision(3)}`;
    const differs = (one?.status ?? "absent") !== (other?.status ?? "absent");
    return { name, label: (one ?? other).label || name, a: shownAs(one), b: shownAs(other), by: shown, differs };
  });
}

/** @param {import("../types.js").Reading | undefined} one */
function shownAs(one) {
  if (!one) return ABSENT;
  return one.status === "warning" || one.status === "critical" ? `${one.text} ${one.status}` : one.text;
}

/** What differs in what both reported of themselves. @param {any} a @param {any} b @returns {Row[]} */
function settings(a, b) {
  const all = (/** @type {any} */ one) => ({ ...one?.config, ...one?.revision, ...one?.environment });
  const [one, other] = [all(a), all(b)];
  return [...new Set([...Object.keys(one), ...Object.keys(other)])].filter((name) => one[name] !== other[name])
    .map((name) => ({ name, label: name, a: one[name] ?? ABSENT, b: other[name] ?? ABSENT, by: "", differs: true }));
}

/** @type {[string, (row: Row) => import("./parts.js").Cell, string][]} */
const COLUMNS = [
  ["name", ({ label, differs }) => ({ text: label, is: differs ? "differs" : undefined }), "long"],
  ["A", (row) => row.a, "long"], ["B", (row) => row.b, "long"], ["B − A", (row) => row.by, "num"],
];

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "compare", title: "Compare", where: "main", pages: ["compare"],
  make(ctx) {
    const chosen = /** @type {HTMLSelectElement} */ (h("select", { id: "beside", onchange: () => ctx.link.go({ beside: chosen.value }) }));
    const curves = jump(ctx, { page: "curves" }, "their curves, one over the other");
    const heads = [h("p"), h("p")];
    const numbers = table(ctx, "Readings", COLUMNS, (row) => row.name);
    const differing = table(ctx, "Settings that differ", COLUMNS.slice(0, 3), (row) => row.name);
    const node = h("div", {}, h("p", {}, h("label", { for: "beside" }, "A is the run above. B is "), chosen, " · ", curves),
      heads, numbers.node, differing.node);
    let pair = "";
    /** @type {Snapshot | null} */
    let other = null;

    const poll = polled(EVERY_MS, (mine) => ask(mine).then(ctx.redraw, (error) => ctx.note(`compare: ${error.message}`)));
    /** @param {string} mine */
    async function ask(mine) {
      const list = await ctx.source.ask("runs");
      const names = list.runs.map((one) => one.run_id).filter((name) => name !== mine);
      keyed(chosen, ["", ...names], (name) => name, (name) => ({ node: h("option", { value: name }, name || "choose a run"), update: () => {} }));
      const beside = ctx.link.place.beside.split(",")[0];
      chosen.value = names.includes(beside) ? beside : "";
      other = chosen.value ? await ctx.source.ask("snapshot", { run: beside, rows: "0" }) : null;
      if (pair === `${mine} ${chosen.value}`) return;
      pair = `${mine} ${chosen.value}`;
      const about = (/** @type {string} */ run) => ctx.source.ask("history", { run, name: "-", about: "yes" });
      const [a, b] = other ? await Promise.all([mine, beside].map(about)) : [];
      differing.update(settings(a?.about, b?.about));
    }
    return {
      node,
      update(snapshot) {
        aim(ctx, curves, { page: "curves" });
        poll(snapshot.run.run_id);
        numbers.update(other ? readings(snapshot, other) : []);
        [snapshot, other].forEach((one, place) => put(heads[place], one === null ? "" :
          [`${"AB"[place]} ${one.run.run_id}`, `update ${whole(one.run.update)}`,
            duration(one.run.elapsed_s, { coarse: true }), `${one.verdict.severity}: ${one.verdict.text}`].join(" · ")));
      },
    };
  },
};
