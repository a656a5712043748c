/** Open findings, causes first, each with its age and the next step. */

import { attr, h, keyed, put } from "../dom.js";
import { since } from "../format.js";
import { aim, jump, severity } from "./parts.js";

/** @import { Finding } from "../types.js" */

/** What the verdict has in whole, and needs no action. */
const NO_ALARMS = new Set(["collector-away"]);

/** Who it is about: `gpu1`, `env 17`, `policy`. @param {import("../types.js").Subject} of */
export function subject(of) {
  if (of.id == null || of.scope === "policy" || of.scope === "run") return of.scope;
  return of.scope === "gpu" || of.scope === "host" ? of.id : `${of.scope} ${of.id}`;
}

/** Alarms that are not acknowledged. @param {import("../types.js").Snapshot} snapshot */
export const onRail = (snapshot) => snapshot.findings.filter((one) => !one.acknowledged && !NO_ALARMS.has(one.code));

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "alarms", title: "Alarms", where: "main", pages: ["flight"],
  make(ctx) {
    const title = h("h2");
    const list = h("ol", { class: "alarms" });

    /** @param {Finding} finding */
    function make(finding) {
      const [word, about, age, text, hint, gone] = [h("b"), h("span"), h("span", { class: "num" }), h("span"),
        h("span", { class: "hint" }), h("span", { class: "gone" })];
      const link = jump(ctx, { finding: finding.id }, word, about, age, text, hint, gone);
      attr(link, "class", "alarm");
      return { node: h("li", {}, link), update: (/** @type {Finding} */ one) => {
        const now = one.ended_at ?? /** @type {any} */ (ctx.snapshot).time;
        aim(ctx, link, { finding: one.id });
        attr(link, "data-severity", one.severity);
        attr(link, "data-cleared", one.cleared_at != null);
        put(word, severity(one.severity));
        put(about, subject(one.subject));
        put(age, since(now - one.since));
        put(text, one.message);
        put(hint, one.hint ? `› ${one.hint}` : "");
        attr(gone, "hidden", one.cleared_at == null);
        put(gone, one.cleared_at == null ? "" : `cleared ${since(now - one.cleared_at)}`);
      } };
    }
    return {
      node: h("section", { "aria-label": "Alarms" }, title, list),
      update(snapshot) {
        const rail = onRail(snapshot);
        const open = rail.filter((one) => one.cleared_at == null).length;
        put(title, open ? `Alarms ${open}` : "Alarms none");
        keyed(list, rail, (one) => one.id, make);
      },
    };
  },
};
