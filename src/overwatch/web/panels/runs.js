/** All runs of this collector: state, progress, verdict; each a link. */

import { attr, h, keyed, put } from "../dom.js";
import { duration, whole, ABSENT } from "../format.js";
import { bind } from "../keys.js";

/** @typedef {import("../types.js").RunLine} RunLine */

const EVERY_MS = 2000;
const HEADS = ["run", "task", "algo", "state", "update", "envs", "verdict", "beside"];
/** What belongs to one run, and is left behind with it. */
const OF_RUN = { at: "", env: "", slot: "", lane: "", finding: "", from: "", to: "", first: "" };

bind([
  { keys: ["R"], shown: "R", does: "all runs, or back", run: ({ link }) => link.go({ page: link.place.page === "runs" ? "flight" : "runs" }) },
  { keys: ["N"], shown: "N", does: "the next run", run: (ctx) => void next(ctx) },
]);

/** @param {import("../app.js").Context} ctx */
async function next(ctx) {
  const { runs, newest } = await ctx.source.runs().catch(() => ({ runs: [], newest: null }));
  if (!runs.length) return;
  const at = runs.findIndex((one) => one.run_id === (ctx.link.place.run || newest));
  ctx.link.go({ ...OF_RUN, run: runs[(at + 1) % runs.length].run_id });
}

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "runs", title: "Runs", where: "main", pages: ["runs"],
  make(ctx) {
    const title = h("h2", {}, "Runs");
    const body = h("tbody");
    const table = h("table", {}, h("thead", {}, h("tr", {}, HEADS.map((word) => h("th", { scope: "col" }, word)))), body);
    const node = h("section", { "aria-label": "Runs" }, title, h("div", { class: "wide" }, table));
    let asked = -EVERY_MS;

    /** @param {RunLine} first */
    function make(first) {
      const name = h("a", { onclick: ctx.follow(() => ({ ...OF_RUN, page: "flight", run: first.run_id })) }, first.run_id);
      const cells = [1, 2, 3, 4, 5].map((place) => h("td", place > 3 ? { class: "num" } : {}));
      const [word, text] = [h("b"), h("span")];
      const verdict = h("td", {}, word, " ", text);
      const beside = h("a", { onclick: ctx.follow(() => ({ page: "compare", beside: first.run_id })) }, "compare");
      /** @param {RunLine} run */
      function update(run) {
        attr(name, "href", ctx.link.to({ ...OF_RUN, page: "flight", run: run.run_id }));
        attr(beside, "href", ctx.link.to({ page: "compare", beside: run.run_id }));
        attr(name, "aria-current", ctx.snapshot?.run.run_id === run.run_id ? "true" : null);
        const age = run.data_age_s == null ? "" : ` ${duration(run.data_age_s, { coarse: true })}`;
        const words = [run.task ?? ABSENT, run.algo ?? ABSENT, (run.outcome ?? run.state) + age, whole(run.update), whole(run.n_envs)];
        words.forEach((one, place) => put(cells[place], one));
        attr(verdict, "data-severity", run.severity);
        put(word, run.severity);
        put(text, run.text + (run.archived ? " (archived)" : ""));
      }
      return { node: h("tr", {}, h("th", { scope: "row" }, name), cells, verdict, h("td", {}, beside)), update };
    }
    return {
      node,
      update() {
        if (performance.now() - asked < EVERY_MS) return;
        asked = performance.now();
        ctx.source.runs().then((list) => {
          put(title, `Runs ${list.runs.length}`);
          keyed(body, list.runs, (one) => one.run_id, make);
        }, (error) => ctx.note(`the list of runs: ${error.message}`));
      },
    };
  },
};
