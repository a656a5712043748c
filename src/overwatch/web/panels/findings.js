/** All findings: those that stand, acknowledged and cleared ones too, then those of before; each opens. */

import { h, put } from "../dom.js";
import { ABSENT, clock, duration, whole } from "../format.js";
import { subject } from "./alarms.js";
import { momentOf, standing } from "./finding.js";
import { asked, CLOSED, severity, table } from "./parts.js";

/** @typedef {{word: string, about: string, since: number, lasted: string, state: string, text: string, hint: string,
 *   id: string, at?: {run: string, at: string}}} Listed */

/** @param {number} since @param {number | null} until */
const lasted = (since, until) => (until === null ? ABSENT : duration(Math.max(0, until - since)));

/** @param {import("../types.js").Snapshot} snapshot @returns {Listed[]} */
const now = ({ findings, time }) => findings.map((one) => ({
  word: one.severity, about: subject(one.subject), since: one.since, state: standing(one), text: one.message,
  lasted: lasted(one.since, one.cleared_at ?? one.ended_at ?? time), hint: one.hint, id: one.id,
}));

/** Those that do not stand any more, the newest first.
 * @param {import("../types.js").History} past @param {import("../types.js").Snapshot} snapshot @returns {Listed[]} */
const before = ({ moments, run_id: run }, { findings }) => moments.filter(({ code, since }) =>
  !findings.some((one) => one.code === code && one.since === since)).map((one) => ({
  word: one.severity, about: one.subject ?? "run", since: one.since, state: one.cleared_at === null ? "part of another" : "cleared",
  text: one.message || one.code, lasted: lasted(one.since, one.cleared_at), hint: "",
  id: `${one.code}:${one.subject?.replace(" ", ":") ?? "run:"}`, at: momentOf(run, one.since),
})).reverse();

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "findings", title: "Findings", where: "main", pages: ["findings"],
  make(ctx) {
    const past = asked(ctx, { name: "-", columns: "1" });
    const [title, note] = [h("h2"), h("p", { class: "muted" })];
    const list = table(ctx, "Those that stand, then those of before", [
      ["severity", ({ word }) => ({ text: severity(word), is: word })], ["about", (one) => one.about],
      ["finding", ({ text, id, at }) => ({ text, to: { ...CLOSED, finding: id, ...at } }), "long"],
      ["since", (one) => clock(one.since)], ["lasted", (one) => one.lasted, "num"], ["state", (one) => one.state],
      ["next", (one) => one.hint, "long"],
    ], (/** @type {Listed} */ one) => `${one.id} ${one.since}`);
    return {
      node: h("section", { "aria-label": "Findings" }, title, list.node, note),
      update(snapshot) {
        const { answer, error } = past(snapshot.run.run_id);
        const standingOnes = now(snapshot);
        const older = answer ? before(answer, snapshot) : [];
        const open = standingOnes.filter((one) => one.state === "open").length;
        put(title, `Findings ${open} open, ${snapshot.verdict.acknowledged} acknowledged, ${older.length} before`);
        const count = answer?.moments_left_out ?? 0;
        const left = count ? `${whole(count)} older ones are not held any more` : "";
        const none = standingOnes.length + older.length ? "" : "nothing is wrong";
        put(note, error ? `those before are not known: ${error}` : left || none);
        list.update([...standingOnes, ...older]);
      },
    };
  },
};
