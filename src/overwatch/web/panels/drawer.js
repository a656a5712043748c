/** What is open at the side: an env, a slot, a lane, the host or a finding; all of the page where it is narrow. */

import { attr, h, put } from "../dom.js";
import { bind, BY } from "../keys.js";
import { isOpen } from "../link.js";
import { onRail } from "./alarms.js";
import { envOf, envPage, envTitle, slotPage } from "./env.js";
import { acknowledge, findingOf, findingPage, findingTitle, momentOf } from "./finding.js";
import { machinePage } from "./machine.js";
import { CLOSED } from "./parts.js";

/** @import { Context, Drawn, Panel } from "../app.js" */
/** @import { Snapshot } from "../types.js" */

/** Each kind: its page, and its title.
 * @type {Record<string, [(ctx: Context) => Drawn, (ctx: Context, snapshot: Snapshot) => string]>} */
const KINDS = {
  finding: [findingPage, findingTitle],
  lane: [machinePage, ({ link: { place } }) => (place.lane === "host" ? "host" : `lane ${place.lane}`)],
  slot: [slotPage, ({ link: { place } }) => `env ${place.env} · ${place.slot}`],
  env: [envPage, envTitle],
};

/** @param {Context} ctx */
const kindOf = ({ link: { place } }) => (place.finding ? "finding" : place.lane ? "lane" :
  place.env && place.slot ? "slot" : place.env ? "env" : "");

/** @param {Context} ctx @param {number} by */
function outlier(ctx, by) {
  const bad = (ctx.snapshot?.envs ?? []).filter((env) => env.status !== "ok").map((env) => String(env.env_id));
  if (!bad.length) return ctx.note("no other environment stands out");
  const here = bad.indexOf(ctx.link.place.env);
  const place = here < 0 ? Math.min(by, 0) : here + by;
  ctx.link.go({ ...CLOSED, env: bad.at(place % bad.length) }, { quiet: kindOf(ctx) !== "" });
}

/** @param {Context} ctx */
function nextSlot(ctx) {
  const { env = null } = ctx.snapshot ? envOf(ctx, ctx.snapshot) : {};
  const slots = Object.entries(env?.slots ?? {});
  const resting = slots.filter(([, { stage }]) => stage === "dormant");
  const names = [...slots.filter((one) => !resting.includes(one)), ...resting].map(([name]) => name);
  if (!names.length) return ctx.note(env ? "this environment has no slots" : "no environment is open");
  ctx.link.go({ slot: names[(names.indexOf(ctx.link.place.slot) + 1) % names.length] });
}

/** @param {Context} ctx */
async function copy(ctx) {
  const { href } = new URL(ctx.link.to({}), location.href);
  const isDone = await navigator.clipboard?.writeText(href).then(() => true, () => false);
  ctx.note(isDone ? "the link to what is shown is in the clipboard" : `copy this link: ${href}`);
}

/** @param {Context} ctx */
function toMoment(ctx) {
  const one = findingOf(ctx);
  if (one && ctx.snapshot) ctx.link.go(momentOf(ctx.snapshot.run.run_id, one.since));
  else ctx.note("no finding is open; A lists them all");
}

/** @param {Context} ctx @param {string} key */
function openAlarm(ctx, key) {
  const one = ctx.snapshot && onRail(ctx.snapshot)[Number(key) - 1];
  if (one) ctx.link.go({ ...CLOSED, finding: one.id });
  else ctx.note(`there is no alarm ${key}`);
}

/** What is open, or all of the page where that holds nothing else. @param {Context} _ @param {string} key */
function scroll(_, key) {
  for (const one of [document.getElementById("side"), document.scrollingElement]) one?.scrollBy(0, BY[key] * LINE);
}

const open = ["drawer", "full"];
bind([
  { keys: ["n", "p"], shown: "n p", does: "next, previous environment that is not OK", run: (ctx, key) =>
    outlier(ctx, key === "n" ? 1 : -1) },
  { keys: ["i"], shown: "i", does: "all about the next slot of the environment", pages: open, run: nextSlot },
  { keys: ["a"], shown: "a", does: "acknowledge the finding that is open", run: (ctx) => void acknowledge(ctx) },
  { keys: ["t"], shown: "t", does: "the moment when the finding began", pages: ["flight", "findings", ...open], run: toMoment },
  { keys: ["B"], shown: "B", does: "the host and its busiest processes, or back", run: (ctx) =>
    ctx.link.go({ ...CLOSED, lane: ctx.link.place.lane === "host" ? "" : "host" }) },
  { keys: ["y"], shown: "y", does: "copy the link to what is shown", run: (ctx) => void copy(ctx) },
  { keys: [..."123456789"], shown: "1-9", does: "open that alarm", pages: ["flight", "full"], run: openAlarm },
  { keys: ["Enter"], shown: "Enter", does: "close the drawer", pages: open, run: (ctx) => ctx.link.go(CLOSED) },
  { keys: ["f"], shown: "f", does: "the drawer on the full screen, or no longer", run: (ctx) =>
    (kindOf(ctx) ? ctx.link.go({ full: ctx.link.place.full ? "" : "yes" }) : ctx.note("nothing is open")) },
  { keys: ["PageDown", "PageUp"], shown: "PgDn", does: "the text of the drawer further down; PgUp: up", pages: open, run: scroll },
  { keys: Object.keys(BY), shown: "j k", does: "a line further down, up", pages: ["full"], run: scroll },
]);

/** What was opened last is what is open. @param {Context} ctx */
function newestWins({ link }) {
  link.listen((place, before) => {
    const isOpened = (/** @type {"env" | "lane"} */ name) => place[name] !== "" && place[name] !== before[name];
    const over = isOpened("env") ? { lane: "", finding: "" } : isOpened("lane") ? { finding: "" } : {};
    const slot = place.env !== before.env && place.slot === before.slot ? "" : place.slot;
    link.go({ ...over, slot, full: isOpen(place) ? place.full : "" }, { quiet: true });
  });
}

/** Pixels of a line of text. */
const LINE = 20;
const NARROW = matchMedia("(max-width: 1180px)");

/** @type {Panel} */
export const panel = {
  name: "drawer", title: "Detail", where: "side",
  make(ctx) {
    const title = h("h2", { tabindex: -1 });
    const close = h("button", { type: "button", title: "Esc", onclick: () => ctx.link.go(CLOSED) }, "Close");
    const inside = h("div");
    /** @type {Map<string, Drawn>} */
    const made = new Map();
    let [shown, isLoaded] = ["", false];
    /** Where the focus was before it came here. @type {Element | null} */
    let before = null;
    newestWins(ctx);
    /** Where there is no room for both, it stands in the place of what is main. */
    const side = /** @type {Element} */ (document.getElementById("side"));
    function role() {
      const isAll = shown !== "" && (NARROW.matches || ctx.link.place.full !== "");
      attr(side, "role", isAll ? "main" : "complementary");
      attr(document.body, "data-full", isAll);
    }
    NARROW.addEventListener("change", role);

    /** @param {string} kind */
    function turn(kind) {
      attr(side, "hidden", !kind);
      attr(document.body, "data-side", kind || null);
      if (!kind) {
        return /** @type {HTMLElement} */ (before?.isConnected ? before : document.getElementById("main")).focus();
      }
      made.set(kind, made.get(kind) ?? KINDS[kind][0](ctx));
      inside.replaceChildren(/** @type {Drawn} */ (made.get(kind)).node);
      if (!shown) before = document.activeElement;
      if (isLoaded) title.focus();
    }
    return {
      node: h("section", {}, h("div", { class: "row" }, title, close), inside),
      update(snapshot) {
        const kind = kindOf(ctx);
        if (kind) put(title, KINDS[kind][1](ctx, snapshot));
        if (kind !== shown) turn(kind);
        [shown, isLoaded] = [kind, true];
        role();
        made.get(kind)?.update(snapshot);
      },
    };
  },
};
