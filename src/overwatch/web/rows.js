/** Lines of the flight board: which there are, in the snapshot's own order, and the columns of each. Pure. */

import { ABSENT, number, whole } from "./format.js";

/** @import { Env, Group, Snapshot } from "./types.js" */
/** @typedef {{name: string, head: string, sort?: string, text: (env: Env) => string, group?: (group: Group) => string}} Column */
/** One lane's lines, or those of the one list: its head, so many rows, and one line for those that are hidden.
 * @typedef {{group: Group | null, isOpen: boolean, rows: number, hidden: number, begin: number, first: number}} Section */
/** @typedef {{sections: Section[], count: number}} Lines */
/** A line; an env that is not here yet is absent.
 * @typedef {{kind: "head" | "env" | "fold", section: Section, env: Env | null}} Line */

/** As many as the terminal asks for: the worst of all lanes... */
export const ROWS = 256;
/** ...and of a window over all rows. */
export const WINDOW = 128;
const STEP = 32;
/** Rows of a lane that are shown though nothing is wrong with them, where other lanes need the room. */
const CALM = 3;
const MOST_CHIPS = 8;
const MOST_DOTS = 16;

const STATUSES = ["crashed", "diverging", "stalled", "degraded", "ok", "unknown"];
/** @type {Record<string, string>} */
const OPS = {
  GERMINATE: "GERM", ADVANCE: "ADV", FOSSILISE: "FOSS", FOSSILIZE: "FOSS", SET_ALPHA: "SETA", SET_ALPHA_TARGET: "SETA",
};
/** @type {Record<string, string>} */
const SHORT_METRICS = { accuracy: "acc", success_rate: "succ", metric: "task", "": "task" };

/** @param {string} word */
export const status = (word) => (word === "unknown" ? word : word.toUpperCase());

/** @param {string} word */
export function operation(word) {
  const name = word.toUpperCase();
  return OPS[name] ?? (name.length > 5 ? `${name.slice(0, 4)}…` : name);
}

/** `1 CRASHED 5 DEGRADED 58 OK`, worst first. @param {Readonly<Record<string, number>>} counts */
export function statusCounts(counts) {
  return STATUSES.filter((word) => counts[word]).map((word) => `${whole(counts[word])} ${status(word)}`).join(" ");
}

/** The metric's own short name. @param {Snapshot} snapshot */
export function metricWord(snapshot) {
  const name = snapshot.run.metric?.name ?? "";
  return SHORT_METRICS[name] ?? (name.length > 5 ? `${name.slice(0, 4)}…` : name);
}

/** `GERM r0c2` of the last action. @param {string | null} action */
function acted(action) {
  const [op, ...where] = (action ?? ABSENT).split(" ");
  return [operation(op), ...where].join(" ");
}

/** What the board may be sorted by: only what the run reports. @param {Snapshot} snapshot */
export function sorts(snapshot) {
  const { columns } = snapshot.board;
  const value = !columns.includes("return") && columns.includes("reward") ? "reward" : "return";
  return ["anomaly", "env", value, "fps", "metric"].filter((name) => ["anomaly", "env", ...columns].includes(name));
}

/** The columns of what the run reports. @param {Snapshot} snapshot @param {{isFlat: boolean, acts: boolean}} how @returns {Column[]} */
export function columnsOf(snapshot, { isFlat, acts }) {
  const has = (/** @type {string} */ name) => snapshot.board.columns.includes(name);
  const value = has("return") ? "return" : "reward";
  /** @type {(Column | false)[]} */
  const all = [
    { name: "env", head: "env", sort: "env", text: (env) => String(env.env_id) },
    isFlat && { name: "lane", head: "on", text: (env) => env.gpu_id ?? ABSENT },
    { name: "status", head: "status", text: (env) => status(env.status) },
    { name: "anom", head: "anom", sort: "anomaly", text: (env) => number(env.anomaly.score, 1, 4) },
    { name: "why", head: "why", text: (env) => env.anomaly.reasons.join(" · ") },
    (has("return") || has("reward")) && { name: "value", head: value, sort: value,
      text: (env) => number(env[/** @type {"return"} */ (value)], 2, 6, { signed: true }),
      group: (group) => number(value === "return" ? group.median_return : null, 2, 6, { signed: true }) },
    has("metric") && { name: "metric", head: metricWord(snapshot), sort: "metric",
      text: (env) => number(env.metric, 2, 5), group: (group) => number(group.median_metric, 2, 5) },
    has("rent") && { name: "rent", head: "rent", text: (env) => number(env.rent, 2, 4),
      group: (group) => number(group.median_rent, 2, 4) },
    has("fps") && { name: "fps", head: "fps", sort: "fps", text: (env) => number(env.fps, 0, 4),
      group: (group) => number(group.median_fps, 0, 4) },
    acts && { name: "action", head: "action", text: (env) => acted(env.last_action) },
  ];
  return /** @type {Column[]} */ (all.filter(Boolean));
}

/** Names over the chips where every env has the run's slots and they are few; else dots have no heads.
 * @param {Snapshot} snapshot */
export function slotHeads(snapshot) {
  const { slots } = snapshot.run;
  const isKnown = (/** @type {Env} */ env) => Object.keys(env.slots).every((name) => slots.includes(name));
  return slots.length <= MOST_CHIPS && snapshot.envs.every(isKnown) ? slots : [];
}

/** Slots that are dots, and how many have no room. @param {Env} env @param {readonly string[]} order */
export function dots(env, order) {
  const named = Object.keys(env.slots);
  let names = [...order.filter((name) => name in env.slots), ...named.filter((name) => !order.includes(name))];
  if (names.length > MOST_DOTS) names = names.filter((name) => env.slots[name].stage !== "dormant").slice(0, MOST_DOTS - 4);
  return { names, more: named.length - names.length };
}

/** The board's lines, and which rows it needs. @param {Snapshot} snapshot @param {ReadonlySet<string>} folded @param {boolean} isFlat
 * @returns {Lines} */
export function layout(snapshot, folded, isFlat) {
  const { envs, board: { groups, offset, total, sort, direction } } = snapshot;
  const isWindow = offset !== null;
  const isShort = !isWindow && groups.length > 1 && sort === "anomaly" && direction === "desc";
  /** @type {Section[]} */
  const sections = [];
  let [begin, first] = [0, 0];
  for (const group of isFlat ? [null] : groups) {
    const every = group?.n_envs ?? (isWindow ? total ?? 0 : envs.length);
    const here = isWindow || !group ? every : envs.filter((env) => env.gpu_id === group.gpu_id).length;
    const bad = isShort ? envs.slice(first, first + here).findLastIndex((env) => env.status !== "ok") + 1 : 0;
    const rows = isShort ? Math.min(here, bad + CALM) : here;
    const isOpen = !folded.has(group?.gpu_id ?? "");
    sections.push({ group, isOpen, rows, hidden: every - rows, begin, first });
    begin += (group ? 1 : 0) + (isOpen ? rows + (every > rows ? 1 : 0) : 0);
    first += here;
  }
  return { sections, count: begin };
}

/** As if a window over all rows were shown. @param {Snapshot} snapshot @returns {Snapshot} */
export const asWindow = (snapshot) => ({ ...snapshot, board: { ...snapshot.board, offset: 0 } });

/** In the order of what was shown before, while that is held; another number of rows or lanes ends it.
 * @param {Snapshot} snapshot @param {Snapshot | null} before @returns {Snapshot} */
export function inOrder(snapshot, before) {
  const { board, envs } = snapshot;
  if (before?.run.run_id !== snapshot.run.run_id || before.board.offset !== board.offset) return snapshot;
  const placed = new Map(envs.map((env) => [env.env_id, env]));
  const lanes = new Map(board.groups.map((group) => [group.gpu_id, group]));
  const isSame = before.envs.length === envs.length && before.board.groups.length === lanes.size
    && before.envs.every(({ env_id, gpu_id }) => placed.get(env_id)?.gpu_id === gpu_id)
    && before.board.groups.every(({ gpu_id }) => lanes.has(gpu_id));
  if (!isSame) return snapshot;
  return { ...snapshot, envs: before.envs.map(({ env_id }) => /** @type {Env} */ (placed.get(env_id))),
    board: { ...board, held: true, groups: before.board.groups.map(({ gpu_id }) => /** @type {Group} */ (lanes.get(gpu_id))) } };
}

/** The line at a place. @param {Lines} lines @param {Snapshot} snapshot @param {number} at @returns {Line} */
export function lineAt(lines, snapshot, at) {
  let section = lines.sections[0];
  for (const one of lines.sections) {
    if (one.begin > at) break;
    section = one;
  }
  const inside = at - section.begin - (section.group ? 1 : 0);
  if (inside < 0) return { kind: "head", section, env: null };
  if (inside >= section.rows) return { kind: "fold", section, env: null };
  const env = snapshot.envs[section.first + inside - (snapshot.board.offset ?? 0)] ?? null;
  return { kind: "env", section, env };
}

/** Where an env is, if it is among those that came. @param {Lines} lines @param {Snapshot} snapshot
 * @param {number} id */
export function placeOf(lines, snapshot, id) {
  const index = snapshot.envs.findIndex((env) => env.env_id === id);
  if (index < 0) return -1;
  const row = index + (snapshot.board.offset ?? 0);
  const section = lines.sections.find((one) => row >= one.first && row < one.first + one.rows);
  return section?.isOpen ? section.begin + (section.group ? 1 : 0) + row - section.first : -1;
}

/** The first row of the window around a line, in steps, so that a little scrolling asks for nothing.
 * @param {Lines} lines @param {number} at */
export function windowAround(lines, at) {
  const section = lines.sections.findLast((one) => one.begin <= at) ?? lines.sections[0];
  if (!section) return 0;
  const row = section.first + Math.max(0, at - section.begin - (section.group ? 1 : 0));
  return Math.max(0, Math.round((row - WINDOW / 2) / STEP) * STEP);
}

/** What a lane's line shows after its name: how many, of what status, and how far it is from the others.
 * @param {Group} group */
export function about(group) {
  const { anomaly } = group;
  const apart = anomaly && anomaly.score >= 1 ? `anom ${number(anomaly.score, 1, 4)}${anomaly.reasons.length ? `, ${anomaly.reasons[0]}` : ""}` : "";
  return [`${whole(group.n_envs)} env`, statusCounts(group.counts), apart].filter(Boolean).join("  ");
}

/** What a line states of the rows that are hidden. @param {Section} section @param {Snapshot} snapshot */
export function hiddenWords({ group, hidden, first, rows }, snapshot) {
  if (!group) return "";
  const bad = snapshot.envs.slice(first, first + rows).filter((env) => env.status !== "ok").length;
  const isCalm = group.n_envs - (group.counts.ok ?? 0) <= bad;
  const { p10_return: low, p90_return: high } = group;
  const signed = (/** @type {number} */ value) => number(value, 2, 8, { signed: true });
  const between = low !== null && high !== null ? ` · return ${signed(low)} to ${signed(high)}, p10 to p90` : "";
  return `${whole(hidden)} more${isCalm ? " OK" : ""}${between}`;
}
