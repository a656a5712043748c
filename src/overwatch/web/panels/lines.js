/** The lines of the feed: what this page keeps of them, which of them pass, and how one is drawn. */

import { h, keyed } from "../dom.js";
import { clock } from "../format.js";
import { CLOSED, jump, pairs, severity } from "./parts.js";

/** @import { Context } from "../app.js" */
/** @import { FeedLine, Snapshot } from "../types.js" */
/** @typedef {FeedLine & {number: number}} Kept */

const MOST = 1000;
export const TOGGLES = ["errors", "seeds", "policy", "log"];
const SEEDS = ["seed_stage_changed", "gate_evaluated"];
const POLICY = ["early_stopped", "curriculum_changed", "non_finite_seen", "measured"];

/** What came so far of the run that is shown, oldest first. */
const kept = { run: "", time: 0, number: 0, lines: /** @type {Kept[]} */ ([]), seen: /** @type {unknown} */ (null) };

/** Add what is new in a snapshot; another run, or a step back in time, starts anew.
 * @param {Snapshot} snapshot */
export function scrollback(snapshot) {
  if (snapshot === kept.seen) return kept.lines;
  const { run: { run_id: run }, time, feed } = snapshot;
  if (run !== kept.run || time < kept.time) kept.lines = [];
  const newest = kept.lines.at(-1);
  const fresh = feed.slice(newest ? feed.findLastIndex((one) => isSame(one, newest)) + 1 : 0);
  if (newest && fresh.length && fresh.length === feed.length) fresh.unshift(gap(fresh[0].time));
  const added = fresh.map((line) => ({ ...line, number: (kept.number += 1) }));
  Object.assign(kept, { run, time, seen: snapshot });
  if (added.length) kept.lines = [...kept.lines, ...added].slice(-MOST);
  return kept.lines;
}

/** @param {FeedLine} one @param {FeedLine} other */
const isSame = (one, other) => /** @type {const} */ (["time", "message", "env_id", "slot", "subsystem", "kind"])
  .every((name) => one[name] === other[name]);

/** @param {number} time @returns {FeedLine} */
const gap = (time) => ({ time, severity: "info", subsystem: "page", kind: "gap", fields: {}, chip: null,
  message: "lines before this one were not received here", env_id: null, gpu_id: null, slot: null, seed_id: null });

/** Which lines pass: of any of the toggled kinds, with every word of the search; with neither, facts and warnings,
 * or all of them. @param {readonly Kept[]} lines @param {string} level @param {string} search */
export function passing(lines, level, search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const toggles = level.split(",").filter((one) => TOGGLES.includes(one));
  if (!toggles.length && !words.length) return level === "all" ? lines : lines.filter(isFact);
  return lines.filter((line) => (!toggles.length || toggles.some((toggle) => is(line, toggle))) &&
    words.every((word) => has(line, word)));
}

/** @param {FeedLine} line */
function isFact({ severity: word, message, kind }) {
  if (["warning", "critical"].includes(word) || /(>FOSSILIZED|>PRUNED)$/.test(message)) return true;
  return ![...SEEDS, "measured"].includes(kind) && !["debug", "trace"].includes(word);
}

/** @param {FeedLine} line @param {string} toggle */
function is(line, toggle) {
  if (toggle === "log") return line.kind === "log_line";
  const isSeed = SEEDS.includes(line.kind);
  if (toggle === "seeds") return isSeed;
  if (toggle === "errors") return line.severity === "critical" || (line.severity === "warning" && !isSeed);
  return POLICY.includes(line.kind) || "update" in line.fields || line.message.startsWith("update=");
}

/** A word anywhere in the line; `env=9` and its like are compared whole.
 * @param {FeedLine} line @param {string} word */
function has(line, word) {
  const [, key, value] = word.match(/^(env|gpu|slot|seed)=(.*)$/s) ?? [];
  const lane = (line.gpu_id ?? "").toLowerCase();
  if (key === "env") return value === String(line.env_id ?? "");
  if (key === "gpu") return value === lane || value === lane.replace(/^gpu/, "");
  if (key) return value === ((key === "slot" ? line.slot : line.seed_id) ?? "").toLowerCase();
  const { subsystem, message, seed_id: seed, slot, gpu_id: gpu, severity: level } = line;
  const texts = [subsystem, message, seed ?? "", slot ?? "", gpu ?? "", level];
  const fields = Object.entries(line.fields).map(([name, text]) => `${name}=${text}`);
  const named = line.env_id == null ? "" : `env ${line.env_id}`;
  return [...texts, ...fields, named].join(" ").toLowerCase().includes(word);
}

/** A list of lines. @param {Context} ctx */
export function lines(ctx) {
  const node = h("ol", { class: "lines" });
  return { node, update: (/** @type {readonly Kept[]} */ shown) =>
    keyed(node, shown, (line) => line.number, (line) => ({ node: row(ctx, line), update: () => {} })) };
}

/** @param {Context} ctx @param {FeedLine} line */
function row(ctx, line) {
  const { env_id: env, gpu_id: lane, slot, chip, seed_id: seed } = line;
  const ids = [
    env != null && jump(ctx, { ...CLOSED, env: String(env) }, `env=${env}`),
    lane != null && `gpu=${lane.replace(/^gpu(?=\d+$)/, "")}`,
    chip != null ? h("span", { "data-glyph": [...chip][0] }, chip) : slot != null && `slot=${slot}`,
    seed != null && `seed=${seed}`,
    line.message,
    ...pairs(line.fields),
  ].filter(Boolean);
  const about = h("span", {}, ids.flatMap((one, place) => (place ? [" ", one] : [one])));
  const when = h("time", { title: new Date(line.time * 1000).toISOString() }, clock(line.time, { millis: true }));
  return h("li", { "data-severity": line.severity }, when, " ", h("b", {}, severity(line.severity)), " ",
    h("span", { class: "by" }, line.subsystem), " ", about);
}
