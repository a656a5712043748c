"""What all dashboards of runs have in common: variables, marks of alerts, the lane of each run's state."""

from overwatch.generate.boards import promql, words
from overwatch.generate.boards.spec import Look, Panel, Query, Variable
from overwatch.generate.boards.uids import RUN_VARIABLE, Board

RUN_VARIABLES = (
    Variable(name=RUN_VARIABLE, label="Run", query=f"label_values(overwatch_run_info, {RUN_VARIABLE})"),
)
RUN_ALERTS = promql.of_run("ALERTS", alertname="=~Overwatch.+", alertstate="firing")

STATE_OF_RUNS = Panel(
    title="State of each run",
    about="Whether a run reports: SLOW and STALE are late, LOST sent no end and came back no more; look at "
    "its trainer's process and log first.",
    look=Look.STATES,
    queries=(
        Query(
            expr=promql.coded("overwatch_run_status", "state", words.RUN_CODES, promql.PER_RUN),
            name="{{rl_run_id}}",
        ),
    ),
    unit="none",
    words=words.RUN_WORDS,
    width=24,
    height=5,
    to=Board.RUN,
)
