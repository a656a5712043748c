/** All runs of this collector, the worst first: state, progress, verdict; each a link. */

import { h, put } from "../dom.js";
import { duration, whole, ABSENT } from "../format.js";
import { bind } from "../keys.js";
import { polled, table } from "./parts.js";

/** @import { RunLine } from "../types.js" */

/** States of training that are not about the age of telemetry. */
const HALTED = ["paused", "stalled"];
const EVERY_MS = 2000;
/** What belongs to one run, and is left behind with it. */
const OF_RUN = { at: "", env: "", slot: "", lane: "", finding: "", from: "", to: "", first: "" };

/** The worst first, and of those as bad the runs that go on. @param {RunLine} run */
const place = ({ severity, outcome }) => 2 * ["critical", "warning", "info", "ok"].indexOf(severity) + Number(outcome !== null);

bind([{ keys: ["N"], shown: "N", does: "the next run", run: (ctx) => void next(ctx) }]);

/** @param {import("../app.js").Context} ctx */
async function next(ctx) {
  const { runs, newest } = await ctx.source.ask("runs").catch(() => ({ runs: [], newest: null }));
  if (!runs.length) return;
  const at = runs.findIndex((one) => one.run_id === (ctx.link.place.run || newest));
  ctx.link.go({ ...OF_RUN, run: runs[(at + 1) % runs.length].run_id });
}

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "runs", title: "Runs", where: "main", pages: ["runs"],
  make(ctx) {
    const title = h("h2", {}, "Runs");
    const age = (/** @type {number | null} */ seconds) => (seconds == null ? "" : ` ${duration(seconds, { coarse: true })}`);
    const list = table(ctx, "All of this collector", [
      ["run", ({ run_id: run }) => ({ text: run, to: { ...OF_RUN, page: "flight", run },
        isHere: ctx.snapshot?.run.run_id === run })],
      ["task", (run) => run.task ?? ABSENT], ["algo", (run) => run.algo ?? ABSENT],
      ["state", (run) => (run.outcome ?? run.state) + (HALTED.includes(run.state) ? "" : age(run.data_age_s))],
      ["update", (run) => whole(run.update), "num"], ["envs", (run) => whole(run.n_envs), "num"],
      ["", ({ severity }) => ({ text: severity, is: severity })],
      ["verdict", (run) => run.text + (run.archived ? " (archived)" : ""), "long"],
      ["beside", ({ run_id: beside }) => ({ text: "compare", to: { page: "compare", beside } })],
    ], (/** @type {RunLine} */ run) => run.run_id);
    const ask = polled(EVERY_MS, () => ctx.source.ask("runs").then(({ runs }) => {
      put(title, `Runs ${runs.length}`);
      list.update([...runs].sort((one, other) => place(one) - place(other)));
    }, (error) => ctx.note(`the list of runs: ${error.message}`)));
    return { node: h("section", { "aria-label": "Runs" }, title, list.node), update: () => ask() };
  },
};
