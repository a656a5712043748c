/** What is open at the side: an env, a slot, a lane, the host or a finding. Beside the board, or all of a narrow page. */

import { attr, h, put } from "../dom.js";
import { bind } from "../keys.js";
import { onRail } from "./alarms.js";
import { envOf, envPage, envTitle, slotPage } from "./env.js";
import { acknowledge, findingOf, findingPage, findingTitle, momentOf } from "./finding.js";
import { hostPage, lanePage } from "./machine.js";
import { CLOSED } from "./parts.js";

/** @typedef {import("../app.js").Context} Context */
/** @typedef {import("../types.js").Snapshot} Snapshot */

/** Each kind with its title, in the order in which the address is looked at.
 * @type {Record<string, [(ctx: Context) => import("../app.js").Drawn, (ctx: Context, snapshot: Snapshot) => string]>} */
const KINDS = {
  finding: [findingPage, (ctx) => {
    const one = findingOf(ctx, ctx.link.place.finding);
    return one ? findingTitle(one) : ctx.link.place.finding;
  }],
  host: [hostPage, () => "host"],
  lane: [lanePage, (ctx) => `lane ${ctx.link.place.lane}`],
  slot: [slotPage, (ctx) => `env ${ctx.link.place.env} · ${ctx.link.place.slot}`],
  env: [envPage, (ctx, snapshot) => envTitle(snapshot, ctx.link.place.env)],
};

/** @param {import("../link.js").Place} place */
const kindOf = (place) => (place.finding ? "finding" : place.lane === "host" ? "host" : place.lane ? "lane" :
  place.env && place.slot ? "slot" : place.env ? "env" : "");

/** The finding that is open, else the one about the env that is. @param {Context} ctx */
const about = (ctx) => findingOf(ctx, ctx.link.place.finding) ?? ctx.snapshot?.findings.find((one) =>
  one.subject.scope === "env" && ctx.link.place.env !== "" && one.subject.id === ctx.link.place.env);

/** @param {Context} ctx @param {number} by */
function outlier(ctx, by) {
  const bad = (ctx.snapshot?.envs ?? []).filter((env) => env.status !== "ok").map((env) => String(env.env_id));
  if (!bad.length) return ctx.note("no other environment stands out");
  const here = bad.indexOf(ctx.link.place.env);
  const place = here < 0 ? (by > 0 ? 0 : bad.length - 1) : (here + by + bad.length) % bad.length;
  ctx.link.go({ ...CLOSED, env: bad[place] }, { quiet: kindOf(ctx.link.place) !== "" });
}

/** @param {Context} ctx */
function nextSlot(ctx) {
  const { env, slot } = ctx.link.place;
  const slots = Object.entries((ctx.snapshot && envOf(ctx.snapshot, env)?.slots) ?? {});
  const names = [...slots.filter(([, one]) => one.stage !== "dormant"), ...slots.filter(([, one]) => one.stage === "dormant")]
    .map(([name]) => name);
  if (!names.length) return ctx.note(env ? "this environment has no slots" : "no environment is open");
  ctx.link.go({ slot: names[(names.indexOf(slot) + 1) % names.length] }, { quiet: slot !== "" });
}

/** @param {Context} ctx */
async function copy(ctx) {
  const done = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
  ctx.note(done ? "the link to what is shown is in the clipboard" : `copy the link: ${location.href}`);
}

bind([
  { keys: ["n"], shown: "n", does: "next environment that is not OK", run: (ctx) => outlier(ctx, 1) },
  { keys: ["p"], shown: "p", does: "previous environment that is not OK", run: (ctx) => outlier(ctx, -1) },
  { keys: ["i"], shown: "i", does: "all about the next slot of the environment", run: nextSlot },
  { keys: ["a"], shown: "a", does: "acknowledge the finding that is open, or about the environment",
    run: (ctx) => acknowledge(ctx, about(ctx)) },
  { keys: ["t"], shown: "t", does: "the moment when the finding began", run: (ctx) => {
    const one = about(ctx);
    if (one && ctx.snapshot) ctx.link.go(momentOf(ctx.snapshot.run.run_id, one.since));
    else ctx.note("no finding is open; A lists them all");
  } },
  { keys: ["B"], shown: "B", does: "the host and its busiest processes, or back", run: (ctx) =>
    ctx.link.go({ ...CLOSED, lane: ctx.link.place.lane === "host" ? "" : "host" }) },
  { keys: ["y"], shown: "y", does: "copy the link to what is shown", run: copy },
  { keys: [..."123456789"], shown: "1-9", does: "open that alarm", pages: ["flight"], run: (ctx, key) => {
    const one = ctx.snapshot && onRail(ctx.snapshot)[Number(key) - 1];
    if (one) ctx.link.go({ ...CLOSED, finding: one.id });
    else ctx.note(`there is no alarm ${key}`);
  } },
]);

/** What was opened last is what is open. @param {Context} ctx */
function newestWins(ctx) {
  ctx.link.listen((place, before) => {
    const isNew = (/** @type {"env"} */ name) => place[name] !== before[name] && place[name] !== "";
    const over = isNew("env") ? { finding: "", lane: "" } : isNew(/** @type {any} */ ("lane")) ? { finding: "" } : {};
    ctx.link.go({ ...over, ...(place.env !== before.env && place.slot === before.slot ? { slot: "" } : {}) }, { quiet: true });
  });
}

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "drawer", title: "Detail", where: "side",
  make(ctx) {
    const title = h("h2", { tabindex: -1 });
    const close = h("button", { type: "button", title: "Esc", onclick: () => ctx.link.go(CLOSED) }, "Close");
    const inside = h("div");
    const node = h("section", {}, h("div", { class: "row" }, title, close), inside);
    const side = /** @type {HTMLElement} */ (document.getElementById("side"));
    /** @type {Map<string, import("../app.js").Drawn>} */
    const made = new Map();
    let [shown, isLoaded] = ["", false];
    /** Where the focus was before it came here. @type {Element | null} */
    let before = null;
    newestWins(ctx);

    /** @param {string} kind */
    function turn(kind) {
      const was = shown;
      shown = kind;
      attr(side, "hidden", !kind);
      attr(document.body, "data-side", kind || null);
      if (!kind) return /** @type {HTMLElement} */ (before?.isConnected ? before : document.getElementById("main")).focus();
      const drawn = made.get(kind) ?? KINDS[kind][0](ctx);
      made.set(kind, drawn);
      inside.replaceChildren(drawn.node);
      if (!was) before = document.activeElement;
      if (isLoaded) title.focus();
    }
    return {
      node,
      update(snapshot) {
        const kind = kindOf(ctx.link.place);
        if (kind) put(title, KINDS[kind][1](ctx, snapshot));
        if (kind !== shown) turn(kind);
        made.get(kind)?.update(snapshot);
        isLoaded = true;
      },
    };
  },
};
