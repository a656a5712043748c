/** All findings: those that stand, acknowledged and cleared ones too, then those of before; each opens. */

import { h, put } from "../dom.js";
import { clock, duration, whole } from "../format.js";
import { bind } from "../keys.js";
import { subject } from "./alarms.js";
import { momentOf, standing } from "./finding.js";
import { Asked, CLOSED, severity, table } from "./parts.js";

/** @typedef {import("../types.js").Finding} Finding */
/** @typedef {import("../types.js").Moment} Moment */

bind([{ keys: ["A"], shown: "A", does: "all findings, or back", run: (ctx) =>
  ctx.link.go({ page: ctx.link.place.page === "findings" ? "flight" : "findings" }) }]);

/** The name that a finding of the past had. @param {Moment} one */
const idOf = (one) => `${one.code}:${one.subject?.replace(" ", ":") ?? "run:"}`;

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "findings", title: "Findings", where: "main", pages: ["findings"],
  make(ctx) {
    const now = () => ctx.snapshot?.time ?? 0;
    const past = new Asked(ctx, { name: "-", columns: "1" });
    const [title, none, note] = [h("h2"), h("p", { class: "muted" }), h("p", { class: "muted" })];
    const standingOnes = table(ctx, "Now", [
      ["severity", (one) => ({ text: severity(one.severity), is: one.severity })],
      ["about", (one) => subject(one.subject)],
      ["age", (one) => duration(Math.max(0, (one.ended_at ?? now()) - one.since)), "num"],
      ["state", standing],
      ["finding", (one) => ({ text: one.message, to: { ...CLOSED, finding: one.id } })], ["next", (one) => one.hint],
    ], (/** @type {Finding} */ one) => one.id);
    const before = table(ctx, "Before", [
      ["severity", (one) => ({ text: severity(one.severity), is: one.severity })], ["about", (one) => one.subject ?? "run"],
      ["since", (one) => clock(one.since)],
      ["lasted", (one) => (one.cleared_at == null ? "–" : duration(one.cleared_at - one.since)), "num"],
      ["finding", (one) => ({ text: one.message || one.code,
        to: { ...CLOSED, finding: idOf(one), ...momentOf(ctx.snapshot?.run.run_id ?? "", one.since) } })],
    ], (/** @type {Moment} */ one) => `${one.code} ${one.subject} ${one.since}`);
    const node = h("section", { "aria-label": "Findings" }, title, none, standingOnes.node, before.node, note);
    return {
      node,
      update({ findings, run }) {
        const open = findings.filter((one) => one.cleared_at == null);
        put(title, `Findings ${open.length} open, ${findings.filter((one) => one.acknowledged).length} acknowledged`);
        put(none, findings.length ? "" : "nothing is wrong");
        standingOnes.update(findings);
        const answer = past.of(run.run_id);
        const known = new Set(findings.map((one) => `${one.code} ${one.since}`));
        before.update((answer?.moments ?? []).filter((one) => !known.has(`${one.code} ${one.since}`)).toReversed());
        const left = answer?.moments_left_out ? `${whole(answer.moments_left_out)} older ones are not held any more` : "";
        put(note, past.error ? `those before are not known: ${past.error}` : left);
      },
    };
  },
};
