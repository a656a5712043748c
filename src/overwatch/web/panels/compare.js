/** This run beside another: both verdicts, every reading of both, and what differs in their settings. */

import { attr, h, keyed, put } from "../dom.js";
import { ABSENT, duration, whole } from "../format.js";
import { bind } from "../keys.js";

/** @typedef {import("../types.js").Snapshot} Snapshot */
/** @typedef {{name: string, label: string, a: string, b: string, by: string, differs: boolean}} Row */

const EVERY_MS = 2000;

bind([{ keys: ["C"], shown: "C", does: "this run beside another, or back",
  run: ({ link }) => link.go({ page: link.place.page === "compare" ? "flight" : "compare" }) }]);

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

/** @param {string} title @param {string[]} heads */
function table(title, heads) {
  const [caption, body] = [h("h2", {}, title), h("tbody")];
  const node = h("section", { "aria-label": title }, caption, h("div", { class: "wide" },
    h("table", {}, h("thead", {}, h("tr", {}, heads.map((word) => h("th", { scope: "col" }, word)))), body)));
  /** @param {readonly Row[]} rows */
  const update = (rows) => keyed(body, rows, (row) => row.name, () => {
    const cells = heads.slice(1).map(() => h("td"));
    const name = h("th", { scope: "row" });
    return { node: h("tr", {}, name, cells), update: (/** @type {Row} */ row) => {
      put(name, row.label);
      [row.a, row.b, row.by].slice(0, cells.length).forEach((text, place) => put(cells[place], text));
      attr(/** @type {HTMLElement} */ (name.parentElement), "class", row.differs ? "differs" : null);
    } };
  });
  return { node, update };
}

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "compare", title: "Compare", where: "main", pages: ["compare"],
  make(ctx) {
    const chosen = /** @type {HTMLSelectElement} */ (h("select", { id: "beside", onchange: () => ctx.link.go({ beside: chosen.value }) }));
    const curves = h("a", { onclick: ctx.follow(() => ({ page: "curves" })) }, "their curves, one over the other");
    const heads = [h("p"), h("p")];
    const [numbers, differing] = [table("Readings", ["reading", "A", "B", "B − A"]), table("Settings that differ", ["setting", "A", "B"])];
    const node = h("div", {}, h("p", {}, h("label", { for: "beside" }, "A is the run above. B is "), chosen, " · ", curves),
      heads, numbers.node, differing.node);
    let [asked, pair] = [-EVERY_MS, ""];
    /** @type {Snapshot | null} */
    let other = null;

    async function ask() {
      const mine = /** @type {Snapshot} */ (ctx.snapshot).run.run_id;
      const list = await ctx.source.runs();
      const names = list.runs.map((one) => one.run_id).filter((name) => name !== mine);
      keyed(chosen, ["", ...names], (name) => name, (name) => ({ node: h("option", { value: name }, name || "choose a run"), update: () => {} }));
      const beside = ctx.link.place.beside.split(",")[0];
      chosen.value = names.includes(beside) ? beside : "";
      other = chosen.value ? await ctx.source.ask("snapshot", { run: beside, rows: "0" }) : null;
      if (other && pair !== `${mine} ${beside}`) {
        pair = `${mine} ${beside}`;
        const [a, b] = await Promise.all([mine, beside].map((run) => ctx.source.history({ run, name: "-", about: "yes" })));
        differing.update(settings(a.about, b.about));
      }
    }
    return {
      node,
      update(snapshot) {
        attr(curves, "href", ctx.link.to({ page: "curves" }));
        if (performance.now() - asked >= EVERY_MS) {
          asked = performance.now();
          ask().then(ctx.redraw, (error) => ctx.note(`compare: ${error.message}`));
        }
        attr(numbers.node, "hidden", !other);
        attr(differing.node, "hidden", !other);
        if (other) numbers.update(readings(snapshot, other));
        [snapshot, other].forEach((one, place) => put(heads[place], one === null ? "" :
          [`${"AB"[place]} ${one.run.run_id}`, `update ${whole(one.run.update)}`,
            duration(one.run.elapsed_s, { coarse: true }), `${one.verdict.severity}: ${one.verdict.text}`].join(" · ")));
      },
    };
  },
};
