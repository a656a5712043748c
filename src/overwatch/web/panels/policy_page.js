/** Every reading of the policy with its judgement; each opens its curve. */

import { h, keyed, put } from "../dom.js";
import { short, whole } from "../format.js";
import { aim, jump } from "./parts.js";
import { CELLS, judged } from "./policy.js";

const HEADS = ["reading", "now", "", "judged", "newest updates", "limit", "warnings", "criticals", ""];

/** Those of the pulse first, then all others that have a value. @param {import("../types.js").Snapshot} snapshot */
export function names({ policy }) {
  const rest = Object.keys(policy).filter((name) => policy[name].status !== "absent");
  return [...new Set([...CELLS.map(([name]) => name).filter((name) => policy[name]), ...rest])];
}

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "policy_page", title: "Policy", where: "main", pages: ["policy"],
  make(ctx) {
    const [title, body] = [h("h2"), h("tbody")];
    const head = h("thead", {}, h("tr", {}, ...HEADS.map((word) => (word ? h("th", { scope: "col" }, word) : h("td")))));
    const table = h("table", { class: "policy-page" }, head, body);
    /** @param {string} name */
    function make(name) {
      const link = jump(ctx, { page: "curves", name });
      const { nodes, update } = judged();
      const [warnings, criticals, spread] = [h("td"), h("td"), h("td")];
      const cells = nodes.map((one) => h("td", {}, one));
      return { node: h("tr", {}, h("th", { scope: "row" }, link), ...cells, warnings, criticals, spread), update: () => {
        const snapshot = /** @type {import("../types.js").Snapshot} */ (ctx.snapshot);
        const one = snapshot.policy[name];
        aim(ctx, link, { page: "curves", name });
        put(link, one.label || name);
        update(one, ctx.source.isOld(snapshot));
        put(warnings, whole(one.warnings));
        put(criticals, whole(one.criticals));
        put(spread, one.spread == null ? "" : `ranks differ by ${short(one.spread)}`);
      } };
    }
    return {
      node: h("section", { "aria-label": "Policy" }, title, h("div", { class: "wide" }, table)),
      update(snapshot) {
        const found = names(snapshot);
        put(title, found.length ? `Policy: ${found.length} readings · preset ${snapshot.run.preset}` : "Policy: no update yet");
        keyed(body, found, (name) => name, make);
      },
    };
  },
};
