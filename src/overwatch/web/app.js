/** The page: which panels there are, where they lie, and how snapshots reach them. */

import { attr, framed, h, keyed, put } from "./dom.js";
import { bind, press } from "./keys.js";
import { kept } from "./kept.js";
import { DEFAULTS, isOpen, Link } from "./link.js";
import { Sight } from "./sight.js";
import { COLLECTOR, Source } from "./source.js";
import { dialog } from "./login.js";
import { ROWS } from "./rows.js";
import { aim, CLOSED, jump } from "./panels/parts.js";
import * as alarms from "./panels/alarms.js";
import * as board from "./panels/board.js";
import * as compare from "./panels/compare.js";
import * as curves from "./panels/curves.js";
import * as heat from "./panels/heat.js";
import * as config from "./panels/config.js";
import * as drawer from "./panels/drawer.js";
import * as feed from "./panels/feed.js";
import * as findings from "./panels/findings.js";
import * as header from "./panels/header.js";
import * as help from "./panels/help.js";
import * as policy from "./panels/policy.js";
import * as policyPage from "./panels/policy_page.js";
import * as runs from "./panels/runs.js";
import * as system from "./panels/system.js";
import * as services from "./panels/services.js";
import * as transport from "./panels/transport.js";

/** @import { Snapshot } from "./types.js" */
/** @typedef {{link: Link, source: Source, sight: Sight, snapshot: Snapshot | null, redraw: () => void,
 *   note: (text: string) => void, login: () => void, window: {first: number | null, rows: number}, view: () => void}} Context */
/** @typedef {{node: HTMLElement, update: (snapshot: Snapshot) => void}} Drawn */
/** `pages`: where it is shown; every page where there are none. `where`: in the header, in the middle, at the side.
 * @typedef {{name: string, title: string, where: "top" | "main" | "side", pages?: string[], make: (ctx: Context) => Drawn}} Panel */

/** In the order in which they are shown. @type {Panel[]} */
export const PANELS = [
  header.panel, transport.panel, alarms.panel, policy.panel, system.panel, board.panel, feed.panel, policyPage.panel,
  curves.panel, heat.panel, findings.panel, services.panel, config.panel, runs.panel, compare.panel, help.panel,
  drawer.panel,
];

/** Name, title, and the key that turns to it and back with what that shows. @type {[string, string, string?, string?][]} */
export const PAGES = [
  ["flight", "Flight"], ["policy", "Policy", "P", "all of the policy"],
  ["curves", "Curves", "c", "every number as a chart of the whole run"], ["heat", "Heat"],
  ["findings", "Findings", "A", "all findings"], ["feed", "Feed", "l", "the feed"], ["services", "Services"],
  ["runs", "Runs", "R", "all runs"], ["compare", "Compare", "C", "this run beside another"],
  ["config", "Configuration"], ["help", "Help", "?", "this help"],
];
bind(PAGES.filter(([, , key]) => key).map(([page, , key = "", does]) => ({ keys: [key], shown: key, does: `${does}, or back`,
  run: (ctx) => ctx.link.go({ page: ctx.link.place.page === page ? "flight" : page }) })));

/** How long a collector may take for its first snapshot, before the page shows that it has no run. */
const WELCOME_MS = 800;

/** @param {string} id */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

async function start() {
  const report = document.getElementById("report");
  if (report) {
    DEFAULTS.page = "report";
    PAGES.unshift(["report", "Report"]);
    PANELS.push({ name: "report", title: "Report", where: "main", pages: ["report"], make: () => ({ node: report, update: () => {} }) });
  }
  const link = new Link();
  const redraw = framed(draw);
  const source = new Source((await kept()) ?? COLLECTOR, take, (connection) => {
    if (connection.state === "refused") ctx.login();
    ctx.redraw();
  });
  /** @type {Context} */
  const ctx = {
    link, source, sight: new Sight(link), snapshot: null, redraw, note, window: { first: null, rows: ROWS },
    login: () => dialog(source, redraw), view,
  };

  /** @param {Snapshot} snapshot */
  function take(snapshot) {
    if (!ctx.snapshot) byId("main").replaceChildren();
    ctx.snapshot = snapshot;
    redraw();
  }
  function draw() {
    // Without a snapshot too: the board judges the filter of an address, which may be why none comes.
    shown(ctx).forEach((panel) => drawOne(ctx, panel));
    if (ctx.snapshot) place(ctx);
    else byId("main").replaceChildren(welcome(ctx));
  }
  function view() {
    const { run, at, env, sort, order, filter, grouped } = link.place;
    const rows = { rows: String(ctx.window.rows), offset: ctx.window.first === null ? "" : String(ctx.window.first) };
    source.show({ run, at, env, sort, order: order === "desc" ? "" : order, filter, grouped, ...rows });
  }

  byId("main").replaceChildren();
  link.listen(() => {
    pages(ctx);
    look(link);
    view();
    redraw();
  });
  addEventListener("keydown", (event) => press(event, ctx));
  bind([{ keys: ["Escape"], shown: "Esc", does: "close what is open, then drop the filter", run: () => {
    link.go(isOpen(link.place) ? CLOSED : { filter: "" });
  } }]);
  pages(ctx);
  look(link);
  view();
  redraw();
  // Ages grow while nothing comes.
  setInterval(redraw, 1000);
}

/** What was made of each panel, by its name. @type {Map<string, Drawn>} */
const MADE = new Map();

/** The panels of the page that is open. @param {Context} ctx */
const shown = ({ link }) => PANELS.filter(({ pages }) => !pages || pages.includes(link.place.page));

/** A panel that fails takes no other one with it. @param {Context} ctx @param {Panel} panel */
function drawOne(ctx, panel) {
  try {
    const drawn = MADE.get(panel.name) ?? panel.make(ctx);
    MADE.set(panel.name, drawn);
    if (ctx.snapshot) drawn.update(ctx.snapshot);
  } catch (error) {
    console.error(error);
    note(`${panel.title} cannot be shown: ${error instanceof Error ? error.message : error}`);
  }
}

/** @param {Context} ctx */
function place(ctx) {
  for (const where of /** @type {Panel["where"][]} */ (["top", "main", "side"])) {
    const parts = shown(ctx).filter((panel) => panel.where === where && MADE.has(panel.name));
    keyed(byId(where), parts, (panel) => panel.name, (panel) => ({
      node: /** @type {Drawn} */ (MADE.get(panel.name)).node, update: () => {},
    }));
  }
}

/** What is shown before there is a run: that there is none, and how one begins. @param {Context} ctx */
function welcome({ link: { place: { run } }, source: { connection: { state, reason, since } } }) {
  if (state === "down") return h("p", { class: "muted" }, `Nothing to show: ${reason}`);
  if (state !== "connecting" || Date.now() - since < WELCOME_MS) return h("p", { class: "muted" }, "Connecting …");
  return h("section", { class: "welcome" },
    h("h2", {}, run ? `Waiting for run ${run}` : "No run yet"),
    h("p", {}, "The collector is up and has received nothing" + (run ? " of it." : ".")),
    h("p", {}, "In your trainer:"),
    h("pre", {}, "import overwatch.sdk\nrun = overwatch.sdk.start()\nrun.update(kl_divergence=kl, ...)  # after each update"),
    h("p", {}, "Or a program that knows nothing of Overwatch:"), h("pre", {}, "overwatch watch -- python train.py"));
}

/** A line for what was just done, or could not be. @param {string} text */
function note(text) {
  const line = byId("note") ?? document.body.appendChild(h("p", { id: "note", role: "status" }));
  put(line, text);
  attr(line, "hidden", !text);
}

/** @param {Link} link */
function look({ place: { page, theme, palette } }) {
  attr(document.body, "data-page", page);
  attr(document.documentElement, "data-theme", theme || null);
  attr(document.documentElement, "data-palette", palette || null);
}

/** The pages, as links that keep the place. @param {Context} ctx */
function pages(ctx) {
  keyed(byId("pages"), PAGES, ([name]) => name, ([name, title]) => {
    const node = jump(ctx, { page: name }, title);
    return { node, update: () => {
      aim(ctx, node, { page: name });
      attr(node, "aria-current", ctx.link.place.page === name ? "page" : null);
    } };
  });
}

void start();
