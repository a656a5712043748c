/** The first lines: which run this is, how far and how fresh; then the verdict, in the snapshot's own words. */

import { attr, h, put } from "../dom.js";
import { ABSENT, duration, moments, percent, short, whole } from "../format.js";
import { severity } from "./parts.js";

/** @import { Snapshot } from "../types.js" */

/** @param {number | null | undefined} done @param {number | null | undefined} planned */
const of = (done, planned) => (done == null ? ABSENT : planned == null ? whole(done) : `${done}/${planned}`);

/** @param {import("../types.js").Run} run */
function progress(run) {
  const words = [];
  if (run.episode != null) words.push(`episode ${whole(run.episode)}`);
  if (run.batch != null) words.push(`batch ${of(run.batch, run.batches)}`);
  words.push(`update ${of(run.update, run.updates)}`);
  if (run.steps != null && run.episode == null) words.push(`frames ${short(run.steps)}`);
  const [done, planned] = run.batches ? [run.batch, run.batches] : [run.update, run.updates];
  if (done != null && planned) words.push(percent(Math.min(1, done / planned)));
  const coarse = (/** @type {number | null | undefined} */ s) => (s == null ? ABSENT : s >= 1 ? duration(s, { coarse: true }) : "0s");
  words.push(`run ${coarse(run.elapsed_s)}`, `eta ${coarse(run.eta_s)}`);
  words.push(`ckpt ${coarse(run.checkpoint_age_s)}${run.checkpoint_age_s == null ? "" : " ago"}`);
  if (run.steps_per_s != null) words.push(`${short(run.steps_per_s)}/s`);
  return words.join(" · ");
}

/** Open findings by severity, and how many are acknowledged. @param {import("../types.js").Verdict} verdict */
function counted({ counts, acknowledged }) {
  const known = [[counts.critical, "crit"], [counts.warning, "warn"], [acknowledged, "acked"]];
  return known.filter(([count]) => count).map((one) => one.join(" ")).join("  ");
}

/** @param {import("../types.js").Run} run */
function identity(run) {
  const parts = [run.task, run.reward_mode, run.algo].filter(Boolean).join("/");
  const counts = [
    run.devices.length ? `${run.devices.length} devices` : "",
    (run.ranks ?? 1) > 1 ? `${run.ranks} ranks` : "",
    run.n_envs == null ? "" : `${whole(run.n_envs)} envs`,
    run.slots_enabled && run.slots.length ? `${run.slots.length} slots` : "",
  ];
  const git = run.git_sha ? `git ${run.git_sha.slice(0, 7)}${run.dirty ? "+dirty" : ""}` : "";
  return [parts, run.node ? `node ${run.node}` : "", ...counts, git].filter(Boolean).join(" · ");
}

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "header", title: "Run", where: "top",
  make(ctx) {
    const name = h("h1");
    const about = h("p", { class: "muted" });
    const state = h("span", { class: "state" });
    const far = h("p", { class: "far" });
    const word = h("b");
    const text = h("span", { class: "text" });
    const note = h("span", { class: "muted" });
    const verdict = h("p", { class: "verdict", "aria-live": "polite" }, word, text, note);
    const node = h("div", { class: "head" }, h("div", { class: "row" }, name, state), about, far, verdict);
    return { node, update(snapshot) {
      const { run, link, verdict: of_, time } = snapshot;
      put(name, run.run_id);
      put(about, identity(run));
      put(far, progress(run));
      const { state: is, reason, since } = ctx.source.connection;
      const isCut = is !== "up";
      const waited = (Date.now() - since) / 1000;
      const at = ctx.link.place.at ? `at ${new Date(time * 1000).toISOString()}` : link.halted ?? `${link.state} ${duration(link.data_age_s)}`;
      put(state, isCut ? `disconnected ${duration(waited)}` : at);
      attr(state, "data-state", isCut ? "stale" : link.halted ?? link.state);
      const worst = isCut ? "critical" : of_.severity;
      put(word, severity(worst));
      put(text, isCut ? `collector silent for ${duration(waited)}; reconnecting. ${reason}` : moments(of_.text, time));
      put(note, isCut ? "everything below is old" : of_.note ?? counted(of_));
      attr(verdict, "data-severity", worst);
      attr(document.body, "data-old", isCut);
      document.title = `${worst === "ok" ? "" : `${severity(worst)} `}${run.run_id} · Overwatch`;
    } };
  },
};
