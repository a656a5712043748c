/** All about one finding: what, since when, why, and what to do; and the button that acknowledges it. */

import { attr, h, put } from "../dom.js";
import { duration, sparkline, whole, zoned } from "../format.js";
import { subject } from "./alarms.js";
import { CLOSED, facts, severity } from "./parts.js";

/** @import { Context } from "../app.js" */
/** @import { Finding, Snapshot } from "../types.js" */

/** The one that is open, else the one about the env that is. @param {Context} ctx */
export function findingOf({ link: { place: { finding, env } }, snapshot }) {
  return snapshot?.findings.find((one) => (finding ? one.id === finding :
    env !== "" && one.subject.scope === "env" && one.subject.id === env));
}

/** @param {Context} ctx */
export function findingTitle(ctx) {
  const one = findingOf(ctx);
  return one ? `${severity(one.severity)} · ${subject(one.subject)} · ${one.code}` : ctx.link.place.finding;
}

/** @param {Finding} one */
export const standing = (one) => (one.acknowledged ? "acknowledged" : one.cleared_at != null ? "cleared" :
  one.ended_at != null ? "open at the end" : "open");

/** The page at the moment when something began. @param {string} run @param {number} since */
export const momentOf = (run, since) => ({ run, at: String(Math.ceil(since)) });

/** Acknowledge the finding that is open; who may not is asked for a token. @param {Context} ctx */
export async function acknowledge(ctx) {
  const one = findingOf(ctx);
  if (!ctx.snapshot || !one) return ctx.note("there is nothing to acknowledge");
  if (one.acknowledged) return ctx.note(`${one.code} is acknowledged already`);
  if (ctx.link.place.at) return ctx.note("this is the past; only a live finding can be acknowledged");
  ctx.note(`${one.code}: acknowledging`);
  try {
    await ctx.source.ask(`findings/${encodeURIComponent(one.id)}/ack`, { run: ctx.snapshot.run.run_id }, { method: "POST" });
    ctx.note(`${one.code}: acknowledged`);
  } catch (error) {
    const { status, message } = /** @type {import("../source.js").ApiError} */ (error);
    ctx.note(`${one.code} is not acknowledged: ${message}`);
    if (status === 401 || status === 403) ctx.login();
  }
}

/** @param {Snapshot} snapshot @param {Finding} one */
function when({ time }, one) {
  const open = (/** @type {number} */ until) => duration(Math.max(0, until - one.since));
  if (one.cleared_at != null) return `cleared after ${open(one.cleared_at)}`;
  if (one.ended_at != null) return `open for ${open(one.ended_at)} when the run ended`;
  return time - one.since >= 1 ? `${open(time)} ago` : "just now";
}

/** @param {Snapshot} snapshot @param {Finding} one @returns {import("./parts.js").Row[]} */
function about(snapshot, one) {
  const { subject: { scope, id }, runbook_url: url, runbook } = one;
  const reading = scope === "policy" ? snapshot.policy[id ?? ""] : undefined;
  const moment = momentOf(snapshot.run.run_id, one.since);
  const limit = reading?.limit ? `, limit ${reading.limit.text}` : "";
  const to = scope === "env" && id ? { ...CLOSED, env: id } : scope === "gpu" && id ? { ...CLOSED, lane: id } :
    scope === "host" ? { ...CLOSED, lane: "host" } : undefined;
  return [
    ["what", one.message],
    ["when", [when(snapshot, one), { text: `since ${zoned(one.since)}`, to: moment }]],
    ["state", standing(one)],
    ["next", one.hint],
    ["because", one.factors.join(" · ")],
    ["also", one.symptoms ? `${whole(one.symptoms)} symptoms counted under it` : ""],
    ["means", runbook?.means ?? ""], ["confirm", runbook?.confirm ?? ""], ["do", runbook?.act ?? ""],
    ["about", { text: subject(one.subject), to }],
    ["value", reading ? `${reading.text}${limit} ${sparkline(reading.history, 10, reading.scale)}` : ""],
    ["runbook", url && /^https?:\/\//i.test(url) ? { text: url, href: url } : ""],
  ];
}

/** @param {Context} ctx */
export function findingPage(ctx) {
  const rows = facts(ctx);
  const button = h("button", { type: "button", onclick: () => acknowledge(ctx) });
  return { node: h("div", {}, rows.node, button), update: (/** @type {Snapshot} */ snapshot) => {
    const one = findingOf(ctx);
    rows.update(one ? about(snapshot, one) : [["finding", "it is not here at this time; A lists those before"]]);
    attr(button, "hidden", !one);
    attr(button, "disabled", one?.acknowledged);
    put(button, one?.acknowledged ? "Acknowledged" : "Acknowledge");
  } };
}
