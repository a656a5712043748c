"""What of the policy could not be judged, in a report: rules without a row, names that no row knows. Pure."""

from overwatch.analyse.judged import skipped, unknown
from overwatch.analyse.page import Markup, section, table, tag, text
from overwatch.analyse.story import Story


def not_judged(story: Story) -> Markup:
    """Two tables; nothing where all rules had their rows and all names are known."""
    rules, names = skipped(story), unknown(story)
    if not rules and not names:
        return Markup("")
    lacking = [(text(rule.code), text(f"needs {', and '.join(rule.needs)}")) for rule in rules]
    custom = [(text(name), text(f"did you mean {near}?" if near else "")) for name, near in names.items()]
    parts = [table(("skipped", ""), lacking)] if lacking else []
    parts += [table(("not recognised, shown only", ""), custom)] if custom else []
    cards = (tag("div", part, class_="card") for part in parts)
    note = f"{len(rules)} rules skipped, {len(names)} names not recognised"
    return section("Not judged", tag("div", *cards, class_="grid"), note=note, anchor="not-judged")
