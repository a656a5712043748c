/** All about one lane, or about the host: every number with its unit, what holds it back, which envs are on it. */

import { duration, fixed, percent, sparkline, whole } from "../format.js";
import { status } from "../rows.js";
import { CLOSED, facts } from "./parts.js";

/** @import { Row } from "./parts.js" */

const WORST = 8;
/** How a number is shown, by its field's name. @type {[RegExp, (value: number) => string][]} */
const UNITS = [
  [/_bytes_per_s$/, (value) => `${fixed(value / 1e6, 1)} MB/s`],
  [/_bytes$/, (value) => `${fixed(value / 2 ** 30, 1)} GiB`],
  [/_hz$/, (value) => `${whole(value / 1e6)} MHz`], [/_w$/, (value) => `${whole(value)} W`],
  [/_c$/, (value) => `${fixed(value, 0)}°C`], [/_s$/, (value) => duration(value)],
  [/utilization|activity|share|busiest/, percent], [/confidence/, (value) => fixed(value)], [/$/, whole],
];
const MARKS = { "!!": "critical", "!": "warning" };

/** All that is known of something, a row a field; the fields of a part follow it.
 * @param {object} of @returns {Row[]} */
export function fields(of) {
  return Object.entries(of).flatMap(([name, value]) => {
    const [end, shown] = UNITS.find(([words]) => words.test(name)) ?? UNITS[0];
    const label = name.replace(end.source.startsWith("_") ? end : "", "").replaceAll("_", " ");
    if (value === null) return [];
    if (Array.isArray(value)) {
      const bars = name.endsWith("history") && sparkline(value, value.length, [0, 1]);
      return /** @type {Row[]} */ ([[label, bars || (name === "processes" ? value.map(line) : value.join(" · "))]]);
    }
    if (typeof value === "number") return /** @type {Row[]} */ ([[label, shown(value)]]);
    if (typeof value === "string") return /** @type {Row[]} */ ([[label, value]]);
    if ("p50" in value) return /** @type {Row[]} */ ([[label, `p50 ${shown(value.p50)}, p95 ${shown(value.p95)}`]]);
    const { state = "", mark = "", ...rest } = value;
    return [[label, { text: `${state} ${mark}`.trim(), is: MARKS[/** @type {"!"} */ (mark)] }], ...fields(rest)];
  });
}

/** @param {import("../types.js").Process} one */
const line = ({ pid, name, cpu, ram_bytes: ram }) =>
  `${percent(cpu)} cpu, ${fixed(ram / 2 ** 30, 1)} GiB: ${name}, pid ${pid}`;

/** What grows and is done on a lane, and its worst envs.
 * @param {import("../types.js").Snapshot} snapshot @param {string} id @returns {Row[]} */
function envs({ board, aggregates, envs: rows, run }, id) {
  const group = board.groups.find((one) => one.gpu_id === id);
  const rolled = aggregates.lanes.find((one) => one.gpu_id === id);
  const bad = rows.filter((env) => env.gpu_id === id && env.status !== "ok").slice(0, WORST);
  const counts = Object.entries(group?.counts ?? {}).map(([word, count]) => `${whole(count)} ${status(word)}`);
  const census = Object.entries(rolled?.seed_census ?? {}).map(([stage, count]) => `${stage} ${whole(count)}`);
  const signed = (/** @type {number | null} */ value) => fixed(value, 2, { signed: true });
  const returns = group && [group.median_return, group.p10_return, group.p90_return].map(signed);
  return [
    ["envs", group ? { text: `${whole(group.n_envs)}: ${counts.join(" ")}`,
      to: { ...CLOSED, page: "flight", filter: `gpu=${id}` } } : ""],
    ["return", returns ? `median ${returns[0]}, p10 ${returns[1]} to p90 ${returns[2]}` : ""],
    ["seeds", run.slots_enabled ? census.join(" · ") : ""],
    ["actions", Object.entries(rolled?.actions ?? {}).map(([op, share]) => `${op} ${percent(share)}`).join(" · ")],
    ["worst", bad.map(({ env_id: env, status: word, anomaly: { score, reasons } }) => ({
      text: `env ${env} ${status(word)} ${fixed(score, 1)}${reasons.length ? `: ${reasons[0]}` : ""}`,
      to: { ...CLOSED, env: String(env) },
    }))],
  ];
}

/** @param {import("../app.js").Context} ctx */
export function machinePage(ctx) {
  const rows = facts(ctx);
  return { node: rows.node, update: (/** @type {import("../types.js").Snapshot} */ snapshot) => {
    const { lane: id } = ctx.link.place;
    const { gpus, host, bound } = snapshot.system;
    if (id === "host") return rows.update(fields({ bound, ...host ?? { host: "no readings of it yet" } }));
    const found = gpus.find((one) => one.gpu_id === id) ?? { readings: "none was sent" };
    const { bound: held = null, anomaly = null, ...lane } = /** @type {Partial<import("../types.js").Lane>} */ (found);
    const other = /** @type {Row} */ (["host", { text: "what else runs there", to: { ...CLOSED, lane: "host" } }]);
    const apart = anomaly && `${fixed(anomaly.score, 1)}: ${anomaly.reasons.join(" · ") || "as the others"}`;
    rows.update([...fields({ bound: held, anomaly: apart }), ...envs(snapshot, id), ...fields(lane), other]);
  } };
}
