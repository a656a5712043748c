/** A slot as a chip: one grammar of glyph, blueprint, alpha and words, and what each stage looks like. */

import { fixed } from "./format.js";

/** Glyph, tone and whether a chip names the blueprint, in the order of a seed's life; held to the catalogue by a test.
 * @type {Record<string, [string, string, boolean]>} */
export const STAGES = {
  dormant: ["·", "muted", false], germinated: ["○", "new", true], training: ["◔", "train", true],
  blending: ["◑", "blend", true], holding: ["◕", "hold", true], fossilised: ["●", "done", true],
  pruned: ["✗", "fail", true], embargoed: ["⊘", "fail", false], resetting: ["↺", "muted", false],
  unknown: ["?", "warn", false],
};

/** @import { Slot } from "./types.js" */

/** @param {string} stage @returns {[string, string, boolean]} */
const facets = (stage) => STAGES[stage] ?? STAGES.unknown;

/** The name of a colour for a stage. @param {string} stage */
export const tone = (stage) => facets(stage)[1];

/** The stage in words: `BLENDING`. @param {string} stage */
export const label = (stage) => (stage === "fossilised" ? "FOSSILIZED" : stage.toUpperCase());

/** Glyph, the blueprint's code and a tenth of alpha: `◑cs4`. @param {Slot} slot @param {Readonly<Record<string, string>>} codes */
export function chip(slot, codes) {
  const [glyph, , isNamed] = facets(slot.stage);
  const code = isNamed && slot.blueprint ? (codes[slot.blueprint] ?? slot.blueprint).slice(0, 2) : "";
  const isMixed = slot.stage === "blending" && slot.alpha !== null;
  return glyph + code + (isMixed ? Math.min(9, Math.max(0, Math.trunc(/** @type {number} */ (slot.alpha) * 10 + 1e-9))) : "");
}

/** All of a slot in words: `r0c1 ◑ BLENDING conv_small 0.42 age 31 G3 0.55`. @param {string} name @param {Slot} slot */
export function words(name, slot) {
  const [glyph, , isNamed] = facets(slot.stage);
  const parts = [name, glyph, label(slot.stage), isNamed ? slot.blueprint : "",
    slot.stage === "blending" && slot.alpha !== null ? fixed(slot.alpha) : "",
    slot.age === null ? "" : `age ${slot.age}`, slot.gate];
  return parts.filter(Boolean).join(" ");
}
