"""The dashboard of lanes, the GPUs that envs run on: what holds each of them back."""

from overwatch.catalog import Metric, label_name, prometheus_name
from overwatch.catalog.machine import (
    CLOCK,
    CLOCK_MAX,
    CPU_BUSIEST,
    LOADER_CAPACITY,
    LOADER_DEPTH,
    MEMORY_TOTAL,
    MEMORY_USED,
    POWER,
    POWER_LIMIT,
    RAM_TOTAL,
    RAM_USED,
    TEMPERATURE,
    UTILIZATION,
)
from overwatch.catalog.run import GPU_IDLE, PHASE_DURATION
from overwatch.generate.boards import promql, words
from overwatch.generate.boards.of_runs import RUN_ALERTS, RUN_VARIABLES
from overwatch.generate.boards.spec import Column, Dashboard, Look, Panel, Query
from overwatch.generate.boards.uids import RUN_VARIABLE, Board

_LANE = (RUN_VARIABLE, label_name("hw.id"))
_NAME = "{{hw_id}} {{rl_run_id}}"


def _of_lane(row: Metric) -> str:
    return promql.worst(promql.of_run(prometheus_name(row)), by=_LANE)


def _of_host(row: Metric) -> str:
    return promql.worst(promql.of_run(prometheus_name(row)))


def _lines(title: str, about: str, expr: str, name: str = _NAME, width: int = 6) -> Panel:
    """A share of something, from 0 to 1."""
    return Panel(
        title=title,
        about=about,
        look=Look.LINES,
        queries=(Query(expr=expr, name=name),),
        unit="percentunit",
        top=1,
        width=width,
        height=7,
        to=Board.RUN,
    )


_MEMORY = f"{_of_lane(MEMORY_USED)} / {_of_lane(MEMORY_TOTAL)}"
_DRAW = f"{_of_lane(POWER)} / {_of_lane(POWER_LIMIT)}"
_PACE = f"{_of_lane(CLOCK)} / {_of_lane(CLOCK_MAX)}"

_TABLE = Panel(
    title="Lanes, the one that rests most first",
    about="One row a GPU: one that rests while its peers work waits for something; one far hotter or slower "
    "than its peers is what the others wait for.",
    look=Look.TABLE,
    queries=(
        Query(expr=f"1 - {_of_lane(UTILIZATION)}", name="rests"),
        Query(expr=_MEMORY, name="memory"),
        Query(expr=_of_lane(TEMPERATURE), name="heat"),
        Query(expr=_DRAW, name="power"),
        Query(expr=_PACE, name="clock"),
    ),
    columns=(
        Column(unit="percentunit", decimals=0),
        Column(unit="percentunit", decimals=0),
        Column(unit=words.unit_of(TEMPERATURE), decimals=0),
        Column(unit="percentunit", decimals=0),
        Column(unit="percentunit", decimals=0),
    ),
    keys={RUN_VARIABLE: "run", label_name("hw.id"): "lane"},
    sort="rests",
    height=9,
    to=Board.RUN,
)

_REST = Panel(
    title="Idle GPUs, by what holds them back",
    about="How many GPUs ran nothing on average, by the bound that held then; the widest band is what to "
    "work on.",
    look=Look.LINES,
    queries=(
        Query(
            expr=promql.total(promql.rate(promql.of_run(prometheus_name(GPU_IDLE))), by=("bound",)),
            name="{{bound}}",
        ),
    ),
    stacked=True,
    height=9,
)

_PHASES = Panel(
    title="How long each phase takes, at its slowest twentieth",
    about="The 95th percentile of each phase of training: the one that grew is where the time went, and a "
    "mark names the trace of one that took so long.",
    look=Look.LINES,
    queries=(
        Query(
            expr=promql.quantile(
                0.95,
                promql.of_run(f"{prometheus_name(PHASE_DURATION)}_bucket"),
                by=(RUN_VARIABLE, "phase"),
            ),
            name="{{phase}} {{rl_run_id}}",
            has_exemplars=True,
        ),
    ),
    unit="s",
    width=24,
    height=7,
    to=Board.RUN,
)

_BOUND = Panel(
    title="What holds each lane back",
    about="The verdict on each GPU over time: red ones are faults to repair, blue ones show where the time "
    "goes, COMPUTE-BOUND is as it should be.",
    look=Look.STATES,
    queries=(Query(expr=promql.coded("overwatch_gpu_bound", "bound", words.BOUND_CODES, _LANE), name=_NAME),),
    unit="none",
    words=words.BOUND_WORDS,
    width=24,
    height=8,
    to=Board.RUN,
)

LANES = Dashboard(
    board=Board.LANES,
    title="lanes and bounds",
    asks="What holds each GPU back?",
    variables=RUN_VARIABLES,
    alerts=RUN_ALERTS,
    panels=(
        _BOUND,
        _TABLE,
        _REST,
        _PHASES,
        _lines(
            "GPU utilisation",
            "Share of the time in which anything ran: a sawtooth means it waits in turn, a low line that it "
            "waits all the time.",
            _of_lane(UTILIZATION),
        ),
        _lines(
            "GPU memory",
            "Used share of memory: a line that climbs from update to update ends in an out-of-memory crash; "
            "look for what is kept.",
            _MEMORY,
        ),
        _lines(
            "GPU clock, of its highest",
            "A clock that sags under load is throttled: heat wants cooling, power wants a higher cap.",
            _PACE,
        ),
        _lines(
            "GPU power, of its limit",
            "Busy but drawing little power means small kernels that the host launches one by one; larger "
            "batches or compiling help.",
            _DRAW,
        ),
        _lines(
            "Busiest core of the host",
            "A core that is full while GPUs rest holds them back: graphs, compiling, or fewer envs a "
            "process help.",
            _of_host(CPU_BUSIEST),
            "{{rl_run_id}}",
            width=8,
        ),
        _lines(
            "Host memory",
            "Used share of the host's memory; near the top the system kills processes, often the trainer.",
            f"{_of_host(RAM_USED)} / {_of_host(RAM_TOTAL)}",
            "{{rl_run_id}}",
            width=8,
        ),
        _lines(
            "Data loader, filled",
            "How full the queue of loaded data is: empty while GPUs rest means storage or loader workers "
            "are too slow.",
            f"{_of_host(LOADER_DEPTH)} / {_of_host(LOADER_CAPACITY)}",
            "{{rl_run_id}}",
            width=8,
        ),
    ),
)
"""The dashboard."""
