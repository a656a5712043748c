"""The dashboard of seed lifecycles: whether seeds get grafted or culled.

A seed is a small network that a run tries out beside its own: it grows through stages until it is part of it
for good (fossilised), or is thrown away (pruned).
"""

from overwatch.catalog import Stage
from overwatch.catalog.stages import Life, of_life
from overwatch.generate.boards import promql, words
from overwatch.generate.boards.of_runs import RUN_ALERTS, RUN_VARIABLES
from overwatch.generate.boards.spec import Dashboard, Look, Panel, Query, Step
from overwatch.generate.boards.uids import Board

_OK = (Step(at=None, colour=words.GREEN),)


def _slots(*stages: Stage) -> str:
    """A selector of slots in these stages."""
    return promql.of_run("overwatch_run_slots", seed_stage=f"=~{'|'.join(stage.value for stage in stages)}")


def _share(*stages: Stage) -> str:
    """Which share of a run's slots is in these stages."""
    return f"{promql.total(_slots(*stages))} / {promql.total(promql.of_run('overwatch_run_slots'))}"


def _number(title: str, about: str, stages: tuple[Stage, ...], steps: tuple[Step, ...]) -> Panel:
    return Panel(
        title=title,
        about=about,
        look=Look.NUMBER,
        queries=(Query(expr=f"sum({_slots(*stages)})", name=title),),
        decimals=0,
        steps=steps,
        width=6,
        height=4,
    )


SEEDS = Dashboard(
    board=Board.SEEDS,
    title="seed lifecycles",
    asks="Do seeds get grafted, or culled?",
    variables=RUN_VARIABLES,
    alerts=RUN_ALERTS,
    panels=(
        _number(
            "Fossilised",
            "Slots whose seed became part of its network for good: the success that all others are on "
            "the way to.",
            of_life(Life.GRAFTED),
            _OK,
        ),
        _number(
            "Growing",
            "Slots whose seed is being tried out; many for long with none fossilised means that gates are "
            "too strict or seeds do not help.",
            of_life(Life.GROWING),
            words.CALM,
        ),
        _number(
            "Culled and resting",
            "Slots whose seed was thrown away and that wait before they may try again; many at once is a "
            "cull storm.",
            of_life(Life.CLEANING),
            words.CALM,
        ),
        _number(
            "Dormant",
            "Slots that hold nothing; all of them for long means that the policy learned to do nothing.",
            of_life(Life.RESTING),
            words.CALM,
        ),
        Panel(
            title="Slots by stage",
            about="All slots over time: a healthy run wanders from dormant to fossilised, a band of pruned "
            "and embargoed that widens is a cull storm.",
            look=Look.LINES,
            queries=(
                Query(
                    expr=promql.total(
                        promql.of_run("overwatch_run_slots", seed_stage="!=unknown"), by=("seed_stage",)
                    ),
                    name="{{seed_stage}}",
                ),
            ),
            stacked=True,
            width=16,
            height=10,
        ),
        Panel(
            title="Slots by stage, now",
            about="Where seeds are at this moment; a crowd in one stage is where they get stuck.",
            look=Look.BARS,
            queries=(
                Query(
                    expr=promql.total(
                        promql.of_run("overwatch_run_slots", seed_stage="!=unknown"), by=("seed_stage",)
                    ),
                    name="{{seed_stage}}",
                ),
            ),
            steps=words.CALM,
            width=8,
            height=10,
        ),
        Panel(
            title="Share fossilised, by run",
            about="How far each run is with its seeds; a line that is flat for long while others rise "
            "deserves a look.",
            look=Look.LINES,
            queries=(Query(expr=_share(Stage.FOSSILISED), name="{{rl_run_id}}"),),
            unit="percentunit",
            top=1,
            to=Board.RUN,
        ),
        Panel(
            title="Share culled and resting, by run",
            about="How many slots pay for seeds that were thrown away; a jump is a cull storm: look at the "
            "newest change of gates, learning rate or task.",
            look=Look.LINES,
            queries=(Query(expr=_share(*of_life(Life.CLEANING)), name="{{rl_run_id}}"),),
            unit="percentunit",
            top=1,
            to=Board.RUN,
        ),
    ),
)
"""The dashboard."""
