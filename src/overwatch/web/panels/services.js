/** Services beside the trainer: how each process is, what it reports, and what is counted. */

import { h, put } from "../dom.js";
import { ABSENT, duration, short, sparkline, whole } from "../format.js";
import { pairs, table } from "./parts.js";

/** @import { Reading, Service, Tally, Total } from "../types.js" */
/** @typedef {Partial<Omit<Tally & Total, "name" | "total">> & {name: string, total: number | null}} Counted */

/** The name of a process: its role, and its rank where that is not 0.
 * @param {{role?: string | null, rank?: number | null}} of */
const process = ({ role, rank }) => (rank ? `${role} ${rank}` : role ?? "all");

/** @param {Service} one */
export function words({ status, age_s: age, bound, parts }) {
  const silent = status === "silent" ? [`silent ${duration(age, { coarse: true })}`] : [];
  const isHeld = bound && bound.state !== "unknown" && !silent.length;
  return [...silent, ...(isHeld ? [`${bound.state} ${bound.why ?? ""}`.trim()] : []), ...parts];
}

/** Readings, those of one process together. @param {Readonly<Record<string, Reading>>} services */
function byProcess(services) {
  const all = Object.entries(services);
  const names = [...new Set(all.map(([, one]) => process(one)))];
  return names.flatMap((name) => all.filter(([, one]) => process(one) === name));
}

/** A bar a bucket, blank where nothing is in it, and where the buckets end. @param {Counted} one */
function spread({ counts = [], bounds = [] }) {
  const bars = sparkline(counts.map((count) => count || null), counts.length, [0, Math.max(1, ...counts)]);
  return bounds.length ? `${bars} ${short(bounds[0])} to ${short(bounds.at(-1))}` : bars;
}

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "services", title: "Services", where: "main", pages: ["services"],
  make(ctx) {
    const processes = table(ctx, "Processes, worst first", [
      ["process", (one) => one.name], ["status", ({ status }) => ({ text: status, is: status })],
      ["age", (one) => duration(one.age_s), "num"], ["how it is", (one) => words(one).join(" · "), "long"],
    ], (/** @type {Service} */ one) => one.name);
    const readings = table(ctx, "What they report", [
      ["process", ([, one]) => process(one)], ["number", ([name, one]) => one.label || name],
      ["value", ([, one]) => one.text, "num"], ["status", ([, { status }]) => ({ text: status, is: status })],
      ["limit", ([, one]) => one.limit?.text ?? ABSENT],
      ["before", ([, one]) => sparkline(one.history, 10, one.scale), "bars"], ["name", ([name]) => name.split("#")[0]],
    ], (/** @type {[string, Reading]} */ [name]) => name);
    const counted = table(ctx, "What is counted, over all and by each", [
      ["process", process], ["name", (one) => one.name], ["labels", ({ labels = {} }) => pairs(labels).join(" "), "long"],
      ["total", (one) => short(one.total), "num"], ["values", (one) => whole(one.count), "num"],
      ["a second", (one) => short(one.rate), "num"], ["p50", (one) => short(one.p50), "num"],
      ["p99", (one) => short(one.p99), "num"], ["spread", spread, "bars"],
    ], (/** @type {Counted} */ one) => JSON.stringify([one.name, one.role, one.rank, one.labels]));
    const none = h("p", { class: "muted" });
    return {
      node: h("section", { "aria-label": "Services" }, h("h2", {}, "Services"), none,
        processes.node, readings.node, counted.node),
      update({ processes: seen, services, totals, tallies }) {
        const all = Object.entries(totals).map(([name, one]) => ({ name, ...one }));
        const isAny = seen.length + all.length + Object.keys(services).length > 0;
        put(none, isAny ? "" : "none reports: a learner, an actor, a replay or a rollouts server would be here");
        processes.update(seen);
        readings.update(byProcess(services));
        counted.update([...all, ...tallies]);
      },
    };
  },
};
