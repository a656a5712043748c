/** The policy's pulse: nine values with their judgement, each a link to its curve. */

import { attr, h, put } from "../dom.js";
import { ABSENT, age, sparkline, whole } from "../format.js";
import { aim, jump, severity } from "./parts.js";

/** @import { Reading, Snapshot } from "../types.js" */

/** Short name in the snapshot's `policy`, and its label. @type {[string, string][]} */
export const CELLS = [
  ["return", "return"], ["kl_divergence", "KL"], ["entropy", "entropy"], ["explained_variance", "expl var"],
  ["clip_fraction", "clip"], ["grad_norm", "grad"], ["learning_rate", "lr"], ["update_time", "update"],
  ["value_loss", "val loss"],
];
/** @type {Record<string, string>} */
const ARROWS = { up: "↑", down: "↓", flat: "→" };
const BARS = 10;

/** @param {Snapshot} snapshot */
function note({ run, policy, link }) {
  if (run.update === null) return `no update yet · preset ${run.preset}`;
  const newest = CELLS.map(([name]) => policy[name]?.age_s).find((known) => known != null);
  const ago = link.state === "ended" ? ", END" : newest == null ? "" : `, ${age(newest)} ago`;
  return `update ${whole(run.update)}${ago} · preset ${run.preset} · last: limit in use`;
}

/** Good or bad by the way in which it should go. @param {Reading | undefined} reading */
const way = (reading) =>
  !reading?.trend || reading.trend === "flat" || !reading.direction ? "" : reading.trend === reading.direction ? "good" : "bad";

/** Value, arrow, word and bars of a reading: spans, and what brings them up to date. */
export function judged() {
  const [value, arrow, word, bars, limit] = ["num", "arrow", "word", "bars", "limit"].map((name) => h("span", { class: name }));
  return { nodes: [value, arrow, word, bars, limit],
    update: (/** @type {Reading | undefined} */ reading, /** @type {boolean} */ isOld) => {
    const text = reading?.text ?? ABSENT;
    const isPlain = text === ABSENT || text === "n/a";
    put(value, isOld && !isPlain && !reading?.non_finite ? `~${text}` : text);
    attr(value, "data-status", reading?.non_finite && !isPlain ? "critical" : isPlain ? "absent" : reading?.status);
    put(arrow, ARROWS[reading?.trend ?? ""] ?? "");
    attr(arrow, "data-way", way(reading));
    put(word, reading?.limit || reading?.status !== "ok" ? severity(reading?.status ?? "") : "");
    attr(word, "data-status", reading?.status);
    put(bars, sparkline(reading?.history ?? [], BARS, reading?.scale));
    put(limit, reading?.limit && reading.status !== "absent" ? reading.limit.text : "");
  } };
}

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "policy", title: "Policy", where: "main", pages: ["flight"],
  make(ctx) {
    const about = h("span", { class: "muted" });
    const cells = CELLS.map(([name, label]) => {
      const { nodes, update } = judged();
      const node = jump(ctx, { page: "curves", name }, h("span", { class: "p-name" }, label), ...nodes);
      attr(node, "class", "p-cell");
      return { node, update: (/** @type {Snapshot} */ snapshot) => {
        aim(ctx, node, { page: "curves", name });
        update(snapshot.policy[name], ctx.source.isOld(snapshot));
      } };
    });
    const title = h("div", { class: "row" }, h("h2", {}, "Policy pulse"), about);
    return {
      node: h("section", { class: "policy", "aria-label": "Policy pulse" }, title,
        h("div", { class: "p-grid" }, ...cells.map((cell) => cell.node))),
      update(snapshot) {
        put(about, note(snapshot));
        for (const cell of cells) cell.update(snapshot);
      },
    };
  },
};
