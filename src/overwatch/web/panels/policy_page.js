/** Every reading of the policy with its judgement; each opens its curve. */

import { wordOf } from "../chart.js";
import { attr, h, keyed, put } from "../dom.js";
import { short, sparkline, whole } from "../format.js";
import { bind } from "../keys.js";

/** @typedef {import("../types.js").Reading} Reading */

/** Those of the pulse come first. */
const FIRST = ["return", "kl_divergence", "entropy", "explained_variance", "clip_fraction", "grad_norm", "learning_rate",
  "update_time", "value_loss"];
const ARROWS = { up: "↑", down: "↓", flat: "→" };
const HEADS = ["reading", "now", "", "judged", "newest updates", "limit", "warnings", "criticals", "over the ranks"];

/** @param {import("../types.js").Snapshot} snapshot */
export function names({ policy }) {
  const rest = Object.keys(policy).filter((name) => policy[name].status !== "absent");
  return [...new Set([...FIRST.filter((name) => policy[name]), ...rest])];
}

bind([{ keys: ["P"], shown: "P", does: "all of the policy, or back",
  run: (ctx) => ctx.link.go({ page: ctx.link.place.page === "policy" ? "flight" : "policy" }) }]);

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "policy_page", title: "Policy", where: "main", pages: ["policy"],
  make(ctx) {
    const [title, body] = [h("h2"), h("tbody")];
    const head = h("thead", {}, h("tr", {}, ...HEADS.map((word) => h("th", { scope: "col" }, word))));
    /** @param {string} name */
    function make(name) {
      const to = () => ({ page: "curves", name });
      const link = h("a", { onclick: ctx.follow(to) });
      const [value, arrow, word, bars, limit, warnings, criticals, spread] = HEADS.slice(1).map(() => h("td"));
      const node = h("tr", {}, h("th", { scope: "row" }, link), value, arrow, word, bars, limit, warnings, criticals, spread);
      return { node, update: () => {
        const one = /** @type {import("../types.js").Snapshot} */ (ctx.snapshot).policy[name];
        const isFlat = one.trend === "flat" || one.direction == null;
        attr(link, "href", ctx.link.to(to()));
        attr(node, "data-severity", one.non_finite && one.non_finite !== "undefined" ? "critical" : one.status);
        attr(arrow, "data-way", isFlat || !one.trend ? null : one.trend === one.direction ? "good" : "bad");
        put(link, one.label || name);
        put(value, one.text);
        put(arrow, ARROWS[/** @type {"up"} */ (one.trend)] ?? "");
        put(word, one.limit || one.status !== "ok" ? wordOf(one.status) : "");
        put(bars, sparkline(one.history, 10, one.scale));
        put(limit, one.limit?.text ?? "");
        put(warnings, whole(one.warnings));
        put(criticals, whole(one.criticals));
        put(spread, one.spread == null ? "" : `differ by ${short(one.spread)}`);
      } };
    }
    return {
      node: h("section", { "aria-label": "Policy" }, title, h("div", { class: "wide" }, h("table", { class: "policy-page" }, head, body))),
      update(snapshot) {
        const found = names(snapshot);
        put(title, found.length ? `Policy: ${found.length} readings · preset ${snapshot.run.preset}` : "Policy: no update yet");
        keyed(body, found, (name) => name, make);
      },
    };
  },
};
