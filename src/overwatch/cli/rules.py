"""`overwatch rules`: alert rules for runs of any length."""

import click

from overwatch.collector.setting_types import seconds


@click.command()
@click.option("--run-length", default="24h", show_default=True, help="How long a run usually takes.")
@click.option("--scrape-interval", default="15s", show_default=True, help="Between two scrapes.")
@click.option("--update-interval", default="10s", show_default=True, help="Between two policy updates.")
@click.option(
    "--budget", default=0.05, show_default=True, help="Share of updates that may leave the trust region."
)
@click.option("--useful", default=0.95, show_default=True,
              help="Share of a run's time in which it should make useful updates.")  # fmt: skip
@click.option("--runs-job", default="overwatch", show_default=True, help="Scrape job of the page of runs.")
@click.option("--collector-job", default="overwatch-collector", show_default=True,
              help="Scrape job of the collector's own page.")  # fmt: skip
@click.option(
    "--runbooks", default="", help="URL of your copy of docs/runbooks.md; without it each alert has the text."
)
@click.option("--grafana", default="http://127.0.0.1:3000", show_default=True, help="Where the boards are.")
@click.option("--tests", "tested", help="Print cases for promtool instead; the rules lie at this path.")
def rules(run_length: str, scrape_interval: str, update_interval: str, *, budget: float,
          useful: float, tested: str | None, **words: str) -> None:  # fmt: skip
    """Print all alert rules for a Prometheus that scrapes the collector."""
    from overwatch.generate.rules import (
        Plan,
        case_file,
        recordings,
        rule_file,
        steady_alerts,
        windowed_alerts,
    )

    try:
        plan = Plan(
            run_length_s=_whole("--run-length", run_length),
            scrape_s=_whole("--scrape-interval", scrape_interval),
            update_s=_whole("--update-interval", update_interval),
            budget=budget,
            useful=useful,
            runs_job=words["runs_job"],
            collector_job=words["collector_job"],
            runbooks=words["runbooks"],
            grafana=words["grafana"],
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    alerts = (*steady_alerts(plan), *windowed_alerts(plan))
    if tested is None:
        click.echo(rule_file(alerts, plan, recorded=recordings(plan)), nl=False)
    else:
        click.echo(case_file(tested, alerts, plan), nl=False)


def _whole(option: str, text: str) -> int:
    found = seconds(option, text)
    if found < 1:
        raise ValueError(f"{option} {text!r} is less than a second; write e.g. 15s or 6h")
    return round(found)
