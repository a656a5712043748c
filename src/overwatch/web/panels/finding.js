/** All about one finding: what, since when, why, and what to do; and the button that acknowledges it. */

import { attr, h, put } from "../dom.js";
import { clock, duration, sparkline, whole } from "../format.js";
import { subject } from "./alarms.js";
import { CLOSED, facts, severity } from "./parts.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {import("../types.js").Finding} Finding */
/** @typedef {import("../types.js").Snapshot} Snapshot */

/** @param {Context} ctx @param {string} id */
export const findingOf = (ctx, id) => ctx.snapshot?.findings.find((one) => one.id === id);
/** @param {Finding} one */
export const findingTitle = (one) => `${severity(one.severity)} · ${subject(one.subject)} · ${one.code}`;

/** How it stands. @param {Finding} one */
export const standing = (one) => (one.acknowledged ? "acknowledged" : one.cleared_at != null ? "cleared" :
  one.ended_at != null ? "open at the end" : "open");

/** Where what it is about can be seen. @param {import("../types.js").Subject} about */
function placeOf({ scope, id }) {
  if (scope === "env" && id != null) return { ...CLOSED, env: id };
  if (scope === "gpu" && id != null) return { ...CLOSED, lane: id };
  return scope === "host" ? { ...CLOSED, lane: "host" } : undefined;
}

/** The page at the moment when something began. @param {string} run @param {number} since */
export const momentOf = (run, since) => ({ run, at: String(Math.ceil(since)) });

/** Acknowledge a finding; who may not is asked to log in. @param {Context} ctx @param {Finding | undefined} one */
export async function acknowledge(ctx, one) {
  if (!ctx.snapshot || !one) return ctx.note("there is nothing to acknowledge");
  if (one.acknowledged) return ctx.note(`${one.code} is acknowledged already`);
  if (ctx.link.place.at) return ctx.note("this is the past; only a live finding can be acknowledged");
  ctx.note(`${one.code}: acknowledging`);
  try {
    await ctx.source.acknowledge(one.id, ctx.snapshot.run.run_id);
    ctx.note(`${one.code}: acknowledged`);
  } catch (error) {
    const { status, message } = /** @type {import("../source.js").ApiError} */ (error);
    ctx.note(`${one.code} is not acknowledged: ${message}`);
    if (status === 401 || status === 403) /** @type {{login?: () => void}} */ (ctx).login?.();
  }
}

/** @param {Context} ctx */
export function findingPage(ctx) {
  const gone = h("p", { class: "muted" });
  const rows = facts(ctx);
  const button = h("button", { type: "button", onclick: () => acknowledge(ctx, findingOf(ctx, ctx.link.place.finding)) });
  const node = h("div", {}, gone, rows.node, button);
  /** @param {Snapshot} snapshot */
  function update(snapshot) {
    const one = findingOf(ctx, ctx.link.place.finding);
    put(gone, one ? "" : "this finding is not here at this time; the page Findings has those before");
    attr(button, "hidden", !one);
    rows.update(one ? about(snapshot, one) : []);
    if (!one) return;
    put(button, one.acknowledged ? "Acknowledged" : "Acknowledge");
    attr(button, "disabled", one.acknowledged);
  }
  return { node, update };
}

/** @param {Snapshot} snapshot @param {Finding} one @returns {[string, import("./parts.js").Cell | import("./parts.js").Cell[]][]} */
function about(snapshot, one) {
  const url = one.runbook_url ?? "";
  const reading = one.subject.scope === "policy" ? snapshot.policy[one.subject.id ?? ""] : undefined;
  const limit = reading?.limit ? `, limit ${reading.limit.text}` : "";
  return [
    ["what", one.message],
    ["when", { text: when(snapshot, one), to: momentOf(snapshot.run.run_id, one.since) }],
    ["state", standing(one)],
    ["next", one.hint],
    ["because", [...one.factors]],
    ["also", one.symptoms ? `${whole(one.symptoms)} symptoms counted under it` : ""],
    ["about", { text: subject(one.subject), to: placeOf(one.subject) }],
    ["value", reading ? `${reading.text}${limit} ${sparkline(reading.history, 10, reading.scale)} last 10 updates` : ""],
    ["runbook", /^https?:\/\//i.test(url) ? { text: url, href: url } : url],
  ];
}

/** @param {Snapshot} snapshot @param {Finding} one */
function when({ time }, one) {
  const open = (/** @type {number} */ until) => duration(Math.max(0, until - one.since));
  const began = ` (since ${clock(one.since)})`;
  if (one.cleared_at != null) return `cleared after ${open(one.cleared_at)}${began}`;
  if (one.ended_at != null) return `open for ${open(one.ended_at)} when the run ended${began}`;
  return (time - one.since >= 1 ? `${open(time)} ago` : "just now") + began;
}
