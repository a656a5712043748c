/** Services beside the trainer: how each process is, what it reports, and what is counted. Hidden without any. */

import { attr, h } from "../dom.js";
import { ABSENT, duration, short, sparkline, whole } from "../format.js";
import { jump, pairs, table } from "./parts.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {import("../types.js").Snapshot} Snapshot */
/** @typedef {import("../types.js").Reading} Reading */
/** @typedef {import("../types.js").Tally} Tally */
/** @typedef {import("../types.js").Total} Total */

const MARKS = { critical: "critical", warning: "warning", silent: "stale", ok: "ok" };
/** The name of a process: its role, and its rank where that is not 0. @param {{role: string | null, rank: number | null}} of */
const process = ({ role, rank }) => (rank ? `${role} ${rank}` : role ?? ABSENT);

/** @param {import("../types.js").Service} one */
function words({ status, age_s: age, bound, parts }) {
  const silent = status === "silent" ? [`silent ${duration(age, { coarse: true })}`] : [];
  const held = bound && bound.state !== "UNKNOWN" && !silent.length ? [`${bound.state} ${bound.why ?? ""}`.trim()] : [];
  return [...silent, ...held, ...parts].join(" · ");
}

/** Processes that report together, each with what it reports. @param {Snapshot["services"]} services */
function byProcess(services) {
  /** @type {Map<string, {key: string, name: string, one: Reading}[]>} */
  const found = new Map();
  for (const [key, one] of Object.entries(services)) {
    const of = process(one);
    found.set(of, [...(found.get(of) ?? []), { key, name: key.split("#")[0], one }]);
  }
  return [...found.values()].flat();
}

/** A bar a bucket, blank where nothing is in it. @param {Tally} one */
const bars = ({ counts }) => (counts.length ? sparkline(counts.map((count) => count || null), counts.length,
  [0, Math.max(1, ...counts)]) : ABSENT);

/** @param {Context} ctx */
function tables(ctx) {
  const readings = table(ctx, "What they report", [
    ["process", ({ one }) => process(one)], ["number", ({ one, name }) => one.label || name], ["value", ({ one }) => one.text, "num"],
    ["status", ({ one }) => ({ text: one.status === "absent" ? ABSENT : one.status, is: one.status })],
    ["limit", ({ one }) => one.limit?.text ?? ABSENT], ["before", ({ one }) => sparkline(one.history, 10, one.scale), "bars"],
    ["name", ({ name }) => name],
  ], (/** @type {{key: string, name: string, one: Reading}} */ row) => row.key);
  const totals = table(ctx, "Counted in all", [
    ["name", ([name]) => name], ["total", ([, one]) => short(one.total), "num"], ["values", ([, one]) => whole(one.count), "num"],
    ["a second", ([, one]) => short(one.rate), "num"], ["p50", ([, one]) => short(one.p50), "num"],
    ["p99", ([, one]) => short(one.p99), "num"],
  ], (/** @type {[string, Total]} */ row) => row[0]);
  const tallies = table(ctx, "Counted by each", [
    ["process", process], ["name", (one) => one.name], ["labels", (one) => pairs(one.labels).join(" ") || ABSENT],
    ["total", (one) => short(one.total), "num"], ["values", (one) => whole(one.count), "num"],
    ["spread", bars, "bars"], ["up to", (one) => (one.bounds.length ? `${short(one.bounds[0])} to ${short(one.bounds.at(-1))}` : ABSENT)],
  ], (/** @type {Tally} */ one) => JSON.stringify([one.name, one.role, one.rank, one.labels]));
  return { readings, totals, tallies };
}

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "services", title: "Services", where: "main", pages: ["flight", "services"],
  make(ctx) {
    const processes = table(ctx, "Processes", [
      ["process", (one) => one.name],
      ["status", (one) => ({ text: one.status, is: MARKS[/** @type {"ok"} */ (one.status)] })],
      ["age", (one) => duration(one.age_s), "num"], ["how it is", words],
    ], (/** @type {import("../types.js").Service} */ one) => one.name);
    const { readings, totals, tallies } = tables(ctx);
    const none = h("p", { class: "muted" }, "no service reports: a learner, an actor, a replay or a rollouts server would be here");
    const more = jump(ctx, { page: "services" }, "all they count");
    const node = h("section", { class: "services" }, h("div", { class: "row" }, h("h2", {}, "Services"), more), none,
      processes.node, readings.node, totals.node, tallies.node);
    return {
      node,
      update(snapshot) {
        const { services, totals: sums, tallies: counted, processes: seen } = snapshot;
        const isWhole = ctx.link.place.page === "services";
        const isAny = seen.length + counted.length + Object.keys(services).length > 0;
        attr(node, "hidden", !isAny && !isWhole);
        attr(none, "hidden", isAny);
        attr(more, "hidden", isWhole);
        processes.update(seen);
        readings.update(isWhole ? byProcess(services) : []);
        totals.update(isWhole ? Object.entries(sums) : []);
        tallies.update(isWhole ? counted : []);
      },
    };
  },
};
