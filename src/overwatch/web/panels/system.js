/** The machines: a line a lane with what holds it back, the host, the telemetry's own lag; then services. */

import { attr, h, keyed, put } from "../dom.js";
import { ABSENT, duration, fixed, memory, percent, short, sparkline } from "../format.js";
import { aim, jump } from "./parts.js";
import { words } from "./services.js";

/** @import { Bound, Lane, Service, Snapshot } from "../types.js" */

const BARS = 10;
const MOST_SERVICES = 8;
/** @type {Record<string, string>} */
const SERVICE_MARKS = { critical: "!!", warning: "!", silent: "!" };

/** A value with its unit, marked where it is old. @param {number | null} value @param {string} text @param {boolean} isOld */
const reading = (value, text, isOld) => (value === null ? ABSENT : isOld ? `~${text}` : text);

/** @param {Bound} bound */
const state = (bound) => `${bound.state} ${bound.mark}`.trim();

/** @param {Snapshot} snapshot @param {boolean} isOld */
function globally({ system: { bound } }, isOld) {
  if (!bound) return "";
  if (isOld) return "global unknown ?";
  return `global ${state(bound)}${!bound.confidence ? "" : ` confidence ${fixed(bound.confidence)}`}`;
}

/** Why no lane has readings, where the machine has sent that. @param {Snapshot} snapshot */
function noLanes({ feed }) {
  const line = feed.findLast((one) => one.subsystem === "gpu" && !("lane" in one.fields));
  return `gpu  ${line?.message ?? "no readings; overwatch doctor shows why"}`;
}

/** @param {Snapshot} snapshot */
function telemetry({ link }) {
  const ahead = link.sources.map((one) => one.clock_ahead_s).filter((one) => one !== null);
  return [
    link.lag_s === null ? "" : `telemetry lag ${fixed(link.lag_s, 1)}s`,
    link.dropped === null ? "" : `dropped ${short(link.dropped)}`,
    ahead.length ? `clock ${fixed(Math.max(...ahead), 0)}s ahead` : "",
  ].filter(Boolean).join("  ");
}

/** @param {Snapshot} snapshot */
function traffic({ system: { host } }) {
  const mb = (/** @type {number} */ rate) => fixed(rate / 1e6, 0);
  if (!host) return "";
  const { disk_read_bytes_per_s: read, disk_write_bytes_per_s: written, network_bytes_per_s: net } = host;
  const capacity = host.loader_capacity === null ? "" : `/${fixed(host.loader_capacity, 0)}`;
  return [
    read === null || written === null ? "" : `disk r ${mb(read)} w ${mb(written)} MB/s`,
    net === null ? "" : `net ${mb(net)} MB/s`,
    host.loader_depth === null ? "" : `loader ${fixed(host.loader_depth, 0)}${capacity}`,
  ].filter(Boolean).join("  ");
}

/** @param {string[]} names */
const spans = (names) => names.map((name) => h("span", { class: `s-${name}` }));

/** @param {import("../app.js").Context} ctx @param {string} gpu */
function makeLane(ctx, gpu) {
  const name = jump(ctx, { lane: gpu }, gpu);
  attr(name, "class", "s-name");
  const [util, bars, ram, heat, power, clock, bound, why] = spans(["num", "bars", "mem", "num", "num", "num", "bound", "why"]);
  const node = h("li", { class: "s-line" }, name, util, bars, ram, heat, power, clock, bound, why);
  return { node, update: (/** @type {Lane} */ lane) => {
    const snapshot = /** @type {Snapshot} */ (ctx.snapshot);
    const isOld = ctx.source.isOld(snapshot);
    aim(ctx, name, { lane: gpu });
    put(util, reading(lane.utilization, percent(lane.utilization), isOld));
    put(bars, sparkline(lane.utilization_history, BARS, [0, 1]));
    put(ram, memory(lane.memory_used_bytes, lane.memory_total_bytes));
    put(heat, reading(lane.temperature_c, `${fixed(lane.temperature_c, 0)}°C`, isOld));
    put(power, reading(lane.power_w, `${fixed(lane.power_w, 0)}W`, isOld));
    put(clock, reading(lane.clock_hz, `${fixed((lane.clock_hz ?? 0) / 1e6, 0)}MHz`, isOld));
    const known = lane.bound;
    put(bound, known ? (isOld ? "unknown ?" : state(known)) : "");
    attr(bound, "data-mark", isOld ? "?" : known?.mark);
    const last = `last verdict ${known?.state}, ${duration(snapshot.link.data_age_s)} ago`;
    put(why, known ? (isOld ? last : known.why ?? known.hint ?? "") : "");
  } };
}

function makeService() {
  const [name, mark, text] = spans(["name", "bound", "why"]);
  return { node: h("li", { class: "s-line" }, name, mark, text), update: (/** @type {Service} */ service) => {
    put(name, service.name);
    put(mark, SERVICE_MARKS[service.status] ?? "");
    attr(mark, "data-mark", SERVICE_MARKS[service.status] ?? "");
    put(text, words(service).join("  "));
  } };
}

function makeHost() {
  const [cpu, bars, ram, rest, lag] = spans(["num", "bars", "mem", "why", "lag"]);
  const node = h("li", { class: "s-line" }, h("span", { class: "s-name" }, "host"), cpu, bars, ram, rest, lag);
  return { node, update: (/** @type {Snapshot} */ snapshot, /** @type {boolean} */ isOld) => {
    const { host } = snapshot.system;
    put(cpu, host ? reading(host.cpu_utilization, percent(host.cpu_utilization), isOld) : "");
    put(bars, host ? sparkline(host.cpu_history, BARS, [0, 1]) : "");
    put(ram, host ? `ram ${memory(host.ram_used_bytes, host.ram_total_bytes)}` : "");
    put(rest, host ? traffic(snapshot) : "no readings yet");
    put(lag, telemetry(snapshot));
    attr(lag, "data-mark", snapshot.link.dropped || snapshot.link.sources.some((one) => one.clock_ahead_s !== null) ? "!" : "");
  } };
}

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "system", title: "System", where: "main", pages: ["flight"],
  make(ctx) {
    const global = h("span");
    const none = h("p", { class: "muted" });
    const [lanes, services] = [h("ul", { class: "s-list" }), h("ul", { class: "s-list" })];
    const host = makeHost();
    const more = jump(ctx, { page: "services" });
    const node = h("section", { class: "system", "aria-label": "System" },
      h("div", { class: "row" }, h("h2", {}, "System"), global), none, lanes,
      h("ul", { class: "s-list" }, host.node), services, more);
    return {
      node,
      update(snapshot) {
        const isOld = ctx.source.isOld(snapshot);
        const { gpus, bound } = snapshot.system;
        put(global, globally(snapshot, isOld));
        attr(global, "data-mark", isOld ? "?" : bound?.mark);
        put(none, gpus.length ? "" : noLanes(snapshot));
        attr(none, "hidden", gpus.length > 0);
        keyed(lanes, gpus, (lane) => lane.gpu_id, (lane) => makeLane(ctx, lane.gpu_id));
        host.update(snapshot, isOld);
        const hidden = snapshot.processes.length - MOST_SERVICES;
        keyed(services, snapshot.processes.slice(0, MOST_SERVICES), (one) => one.name, makeService);
        attr(services, "hidden", !snapshot.processes.length);
        put(more, `+${hidden} more services`);
        attr(more, "hidden", hidden <= 0);
        aim(ctx, more, { page: "services" });
      },
    };
  },
};
