/** All about one environment, and about one of its slots: why it stands out, what grows in it, what it did last. */

import { label } from "../chips.js";
import { h, put } from "../dom.js";
import { ABSENT, clock, duration, fixed, percent, sparkline, whole } from "../format.js";
import { lines, scrollback } from "./lines.js";
import { status } from "../rows.js";
import { CLOSED, facts, severity, table } from "./parts.js";

/** @import { Context } from "../app.js" */
/** @import { Detail, Slot, Snapshot } from "../types.js" */
/** @import { Row } from "./parts.js" */

/** Digits of the numbers of an env, negative where the sign is shown too. @type {Record<string, number>} */
const DIGITS = { return: -2, reward: -2, metric: 2, rent: 2, fps: 0 };
const STRIP = 40;
const LINES = 20;

/** @param {string} name @param {number | null} value */
const shown = (name, value) => (name in DIGITS ? fixed(value, Math.abs(DIGITS[name]), { signed: DIGITS[name] < 0 }) :
  value === null ? ABSENT : String(Number(value.toPrecision(3))));
/** @param {Readonly<Record<string, number>> | undefined} numbers */
const named = (numbers) => Object.entries(numbers ?? {})
  .map(([name, value]) => `${name.replaceAll("_", " ")} ${shown("", value)}`).join(" · ");
/** @param {Slot} slot */
const stage = ({ stage: word, glyph }) => ({ text: `${glyph} ${label(word)}`, glyph });
/** How far the seed is let in; of a pruned one, how far it had been. @param {Slot} slot */
const alpha = ({ stage: word, alpha: share }) =>
  (word === "blending" || (word === "pruned" && share) ? fixed(share) : ABSENT);

/** What is known of the env that the address names. @param {Context} ctx @param {Snapshot} snapshot */
export function envOf(ctx, { envs, detail }) {
  const id = ctx.link.place.env;
  const known = detail && String(detail.env_id) === id ? detail : null;
  return { id, detail: known, env: envs.find((one) => String(one.env_id) === id) ?? known?.env ?? null };
}

/** @param {Context} ctx @param {Snapshot} snapshot */
export function envTitle(ctx, snapshot) {
  const { id, env, detail } = envOf(ctx, snapshot);
  const lane = env?.gpu_id ? [env.gpu_id] : [];
  const state = env ? [...lane, `${status(env.status)} ${fixed(env.anomaly.score, 1)}`] : [];
  const { rank = null, num_envs: all = null } = detail ?? {};
  const place = rank === null || all === null ? [] : [`${ordinal(rank)} of ${whole(all)}`];
  return [`env ${id}`, ...state, ...place].join(" · ");
}

/** @param {number} rank */
const ordinal = (rank) => whole(rank) +
  ([11, 12, 13].includes(rank % 100) ? "th" : ["th", "st", "nd", "rd"][rank % 10] ?? "th");

/** @param {Detail | null} detail @param {string} [slot] */
const events = (detail, slot) => (detail?.seed_events ?? []).filter((one) => !slot || one.slot === slot)
  .map((one) => [clock(one.time), one.slot, one.text, one.why].filter(Boolean).join(" "));

/** @param {Context} ctx @param {Snapshot} snapshot @returns {Row[]} */
function reasons(ctx, snapshot) {
  const { id, env, detail } = envOf(ctx, snapshot);
  const { reasons: why = [], bound = null, removed_at: gone = null } = detail ?? {};
  if (!env) return [["env", gone === null ? "waiting for it" : `the trainer removed it at ${clock(gone)}`]];
  const found = snapshot.findings.filter((one) => one.subject.scope === "env" && one.subject.id === id);
  const told = why.map((one) => `${fixed(one.weight, 1, { signed: true })} ${one.name} ${one.text}`);
  const because = bound?.why || bound?.hint;
  return [
    ["why", told.length ? told : env.anomaly.reasons.length ? env.anomaly.reasons : "nothing stands out"],
    ["finding", found.map((one) => ({
      text: `${severity(one.severity)} ${one.message}`, is: one.severity, to: { finding: one.id } }))],
    ["lane", env.gpu_id ? { text: env.gpu_id, to: { ...CLOSED, lane: env.gpu_id } } : ""],
    ["bound", bound ? `${bound.state} ${bound.mark}`.trim() + (because ? `: ${because}` : "") : ""],
  ];
}

/** @param {Snapshot} snapshot @param {Detail} detail @returns {Row[]} */
function did(snapshot, detail) {
  const [taken, ...others] = detail.choice.map((one) => `${one.op} ${percent(one.probability)}`);
  return [
    ["network", named(detail.numbers)],
    ["chose", taken ? taken + (others.length ? `, else ${others.join(" · ")}` : "") : ""],
    ["acts", detail.actions.join(" · ")],
    ["lives", lives(snapshot, detail)],
    ["seeds", snapshot.run.slots_enabled ? events(detail) : []],
  ];
}

/** A strip a slot: the glyph of the stage that it was in, from the first move of any until now.
 * @param {Snapshot} snapshot @param {Detail} detail */
function lives({ time, link }, detail) {
  const now = Math.min(time, link.last_at ?? time);
  const began = Math.min(...Object.values(detail.lives).flatMap((stays) => stays.map((stay) => stay.time)));
  const ends = Array.from({ length: STRIP }, (_, cell) => began + (cell + 1) * (now - began) / STRIP);
  const strips = Object.entries(detail.lives).map(([slot, stays]) =>
    `${slot} ${ends.map((end) => stays.findLast((stay) => stay.time <= end)?.glyph ?? " ").join("")}`);
  return strips.length ? [{ text: strips.join("\n"), is: "strip" }, `over ${duration(now - began)} until now`] : [];
}

/** @param {Snapshot} snapshot @param {Detail} detail */
function trends({ run: { metric } }, detail) {
  const names = [...Object.keys(DIGITS), ...Object.keys(detail.trends).filter((name) => !(name in DIGITS))];
  return names.filter((name) => detail.trends[name]).map((name) => {
    const { values, window } = detail.trends[name];
    const env = /** @type {Record<string, any> | null} */ (detail.env);
    const now = shown(name, env?.[name] ?? values.findLast((one) => one !== null) ?? null);
    const word = name !== "metric" ? name : !metric?.name || metric.name === "metric" ? "task" : metric.name;
    return { word, now, bars: sparkline(values, values.length), window };
  });
}

/** @param {Context} ctx */
export function envPage(ctx) {
  const [top, rest, log, feed] = [facts(ctx), facts(ctx), lines(ctx), h("h3")];
  /** @typedef {{word: string, now: string, bars: string, window: string}} Trend */
  const trend = table(ctx, "Trends", [["number", (row) => row.word], ["now", (row) => row.now, "num"],
    ["before", (row) => row.bars, "bars"], ["over", (row) => row.window]], (/** @type {Trend} */ row) => row.word);
  const slots = table(ctx, "Slots", [
    ["slot", ([name]) => ({ text: name, to: { slot: name } })], ["stage", ([, one]) => stage(one)],
    ["blueprint", ([, one]) => one.blueprint ?? ABSENT], ["alpha", ([, one]) => alpha(one), "num"],
    ["age", ([, one]) => whole(one.age), "num"],
    ["gate", ([, one]) => ({ text: one.gate ?? ABSENT, is: one.gate?.includes("fail") ? "warning" : undefined })],
    ["grad", ([, one]) => fixed(one.grad), "num"], ["", ([, , numbers]) => named(numbers), "long"],
  ], (/** @type {[string, Slot, Record<string, number> | undefined]} */ row) => row[0]);
  const node = h("div", {}, top.node, slots.node, trend.node, rest.node, feed, log.node);
  return { node, update: (/** @type {Snapshot} */ snapshot) => {
    const { id, env, detail } = envOf(ctx, snapshot);
    top.update(reasons(ctx, snapshot));
    const order = [...snapshot.run.slots, ...Object.keys(env?.slots ?? {})];
    slots.update([...new Set(order)].filter((name) => env?.slots[name]).map((name) =>
      [name, /** @type {Slot} */ (env?.slots[name]), detail?.slots[name]]));
    trend.update(detail ? trends(snapshot, detail) : []);
    rest.update(detail ? did(snapshot, detail) : []);
    const own = scrollback(snapshot).filter((one) => String(one.env_id) === id).slice(-LINES);
    put(feed, own.length ? "Feed of it" : "");
    log.update(own);
  } };
}

/** @param {Context} ctx */
export function slotPage(ctx) {
  const rows = facts(ctx);
  return { node: rows.node, update: (/** @type {Snapshot} */ snapshot) => {
    const { slot: name } = ctx.link.place;
    const { id, env, detail } = envOf(ctx, snapshot);
    const slot = env?.slots[name];
    rows.update([
      ["stage", slot ? stage(slot) : ABSENT],
      ["blueprint", slot?.blueprint ?? ABSENT],
      ["alpha", fixed(slot?.alpha)],
      ["age", slot?.age == null ? ABSENT : `${whole(slot.age)} steps in this stage` +
        (slot.stage === "embargoed" && snapshot.run.embargo != null ? `, of ${snapshot.run.embargo}` : "")],
      ["gate", slot?.gate ?? ABSENT],
      ["gradient", slot?.grad == null ? ABSENT : `health ${fixed(slot.grad)}`],
      ["adds", named(detail?.slots[name])],
      ["events", events(detail, name)],
      ["env", { text: `env ${id}`, to: { slot: "" } }],
    ]);
  } };
}
