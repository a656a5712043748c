/** The feed: the newest lines, structured; followed unless one scrolls up. On the first page a few of them. */

import { attr, h, put } from "../dom.js";
import { short, whole } from "../format.js";
import { bind } from "../keys.js";
import { isOpen } from "../link.js";
import { lines, passing, scrollback, TOGGLES } from "./lines.js";
import { button, CLOSED, jump, searched } from "./parts.js";

/** @import { Context, Panel } from "../app.js" */
/** @import { Kept } from "./lines.js" */

const FEW = 8;
const pages = ["feed"];

/** The toggles that are on. @param {Context} ctx */
const toggled = (ctx) => ctx.link.place.level.split(",").filter((one) => TOGGLES.includes(one));

/** @param {Context} ctx @param {string} word */
function toggle(ctx, word) {
  const on = toggled(ctx);
  const level = (on.includes(word) ? on.filter((one) => one !== word) : [...on, word]).join(",");
  ctx.link.go({ level }, { quiet: true });
}

/** @param {Context} ctx */
const level = (ctx) => ctx.link.go({ level: ctx.link.place.level === "all" ? "" : "all" }, { quiet: true });

bind([
  ...TOGGLES.map((word, place) => ({ keys: [String(place + 1)], shown: String(place + 1), pages,
    does: `only ${word}, or no longer`, run: (/** @type {Context} */ ctx) => toggle(ctx, word) })),
  { keys: ["v"], shown: "v", does: "every line of the feed, or only facts and warnings",
    pages: ["feed", "flight"], run: level },
  { keys: ["/"], shown: "/", does: "search the feed: words, or env=9", pages, run: () =>
    document.getElementById("search")?.focus() },
  { keys: ["Escape"], shown: "Esc", does: "close what is open, else show all lines again", pages, run: (ctx) => {
    ctx.link.go(isOpen(ctx.link.place) ? CLOSED : { search: "", level: "" });
  } },
  { keys: ["O"], shown: "O", does: "the trainer's own log, or back", run: (ctx) => {
    const isLog = ctx.link.place.page === "feed" && ctx.link.place.level === "log";
    ctx.link.go(isLog ? { page: "flight", level: "" } : { page: "feed", level: "log" });
  } },
]);

/** What chooses the lines. @param {Context} ctx */
function controls(ctx) {
  const words = TOGGLES.map((word) => button(word, () => toggle(ctx, word)));
  const every = button("every line", () => level(ctx));
  const search = searched(ctx, "search", { placeholder: "words, or env=9", "aria-label": "Search the feed" });
  const node = h("div", { class: "bar" }, words.map((one) => one.node), every.node, search.node);
  return { node, update: (/** @type {boolean} */ hasSeeds) => {
    const on = toggled(ctx);
    words.forEach((one, place) => one.update(on.includes(TOGGLES[place])));
    attr(words[1].node, "hidden", !hasSeeds);
    every.update(ctx.link.place.level === "all");
    search.update();
  } };
}

/** @param {string} of @param {string} search */
const nothing = (of, search) => (of === "log" && !search ?
  "no line of the trainer's own log has come; overwatch.sdk.logs has a handler for logging" :
  of || search ? "no line passes; Esc shows all again" : "no line yet");

/** @type {Panel} */
export const panel = {
  name: "feed", title: "Feed", where: "main", pages: ["flight", "feed"],
  make(ctx) {
    const [list, choose] = [lines(ctx), controls(ctx)];
    const state = h("span", { class: "muted" });
    const more = jump(ctx, { page: "feed" }, "all of it");
    const none = h("p", { class: "muted" });
    const box = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Lines" }, list.node);
    const head = h("div", { class: "row" }, h("h2", {}, "Feed"), state, more);
    const node = h("section", { class: "feed" }, head, choose.node, none, box);
    let [isFollowing, drawn] = [true, ""];
    /** @type {readonly Kept[]} */
    let shown = [];
    // The box is filled from below, so that its place is 0 while it is at the newest line.
    box.addEventListener("scroll", () => {
      isFollowing = box.scrollTop > -24;
      ctx.redraw();
    }, { passive: true });
    return {
      node,
      update(snapshot) {
        const { page, level: of, search } = ctx.link.place;
        const isWhole = page === "feed";
        const all = scrollback(snapshot);
        const passed = isWhole ? passing(all, of, search) : passing(all, of === "all" ? of : "", "").slice(-FEW);
        const about = JSON.stringify([snapshot.run.run_id, page, of, search]);
        if (about !== drawn) isFollowing = true;
        const newest = shown.at(-1)?.number ?? 0;
        const newer = isFollowing ? 0 : passed.filter((line) => line.number > newest).length;
        if (isFollowing && (about !== drawn || passed.at(-1)?.number !== newest)) {
          list.update((shown = passed));
          // A browser keeps in place what one reads, also a few pixels above the newest line.
          box.scrollTop = 0;
        }
        drawn = about;
        const rate = snapshot.feed_rate == null ? "" : ` · ${short(snapshot.feed_rate)}/s`;
        put(state, (newer ? `${whole(newer)} newer below` : isFollowing ? "following" : "stopped") + rate);
        put(none, passed.length ? "" : nothing(of, search));
        attr(node, "data-whole", isWhole);
        attr(choose.node, "hidden", !isWhole);
        attr(more, "hidden", isWhole);
        choose.update(snapshot.run.slots_enabled);
      },
    };
  },
};
