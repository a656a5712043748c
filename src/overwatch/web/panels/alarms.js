/** Open findings, causes first, each with its age and the next step. */

import { attr, h, keyed, put } from "../dom.js";
import { since } from "../format.js";

/** @typedef {import("../types.js").Finding} Finding */

const WORDS = { critical: "CRIT", warning: "WARN", info: "INFO" };
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
    const node = h("section", { "aria-label": "Alarms" }, title, list);

    /** @param {Finding} finding */
    function make(finding) {
      const [word, about, age, text, hint, gone] = [h("b"), h("span"), h("span", { class: "num" }), h("span"),
        h("span", { class: "hint" }), h("span", { class: "gone" })];
      const link = h("a", { class: "alarm", onclick: ctx.follow(() => ({ finding: finding.id })) }, word, about, age, text, hint, gone);
      /** @param {Finding} one */
      function update(one) {
        const now = one.ended_at ?? /** @type {any} */ (ctx.snapshot).time;
        attr(link, "href", ctx.link.to({ finding: one.id }));
        attr(link, "data-severity", one.severity);
        attr(link, "data-cleared", one.cleared_at != null);
        put(word, WORDS[/** @type {"info"} */ (one.severity)] ?? one.severity.slice(0, 4).toUpperCase());
        put(about, subject(one.subject));
        put(age, since(now - one.since));
        put(text, one.message);
        put(hint, one.hint ? `› ${one.hint}` : "");
        attr(gone, "hidden", one.cleared_at == null);
        put(gone, one.cleared_at == null ? "" : `cleared ${since(now - one.cleared_at)}`);
      }
      return { node: h("li", {}, link), update };
    }
    return {
      node,
      update(snapshot) {
        const rail = onRail(snapshot);
        const open = rail.filter((one) => one.cleared_at == null).length;
        put(title, open ? `Alarms ${open}` : "Alarms none");
        keyed(list, rail, (one) => one.id, make);
      },
    };
  },
};
