"""What to do about alerts that no finding stands behind: the collector itself, and what takes hours."""

from typing import Final

from overwatch.catalog.runbooks.book import Runbook

ENTRIES: Final = (
    Runbook(
        code="collector-down",
        means="The collector cannot be scraped, or turns away all that it is sent. Runs go on, unwatched.",
        confirm="Ask `curl :13133`; look at `up` of its two jobs in Prometheus.",
        act=(
            "Start it again: what trainers could not deliver they keep and send later. Where it lives and "
            "turns all away, its log has the cause: a full disk, memory, a token."
        ),
    ),
    Runbook(
        code="collector-refusing",
        means="The collector turns away some of what it is sent.",
        confirm="See `overwatch_receiver_refused_requests_total` on its own page, by reason.",
        act=(
            "Follow the reason: `memory` wants room, `full` room or a faster disk (`/ready` names which), "
            "`unauthorized` a token, `too_large` smaller batches. Senders of ours come back by themselves."
        ),
    ),
    Runbook(
        code="connections-refused",
        means="A cap of connections refuses HTTP clients; they get 503 with the cap, and retry.",
        confirm=(
            "See `overwatch_listener_connections` beside its limit, by listener; the health page and the log "
            "name the cap: `max_connections`, `max_connections_per_peer`, or the limit of open files."
        ),
        act=(
            "Raise that setting of the listener's `connections`, or the limit of open files (`ulimit -n`, "
            "`LimitNOFILE`); look for a client that opens connections and never closes them."
        ),
    ),
    Runbook(
        code="frames-late",
        means=(
            "What is shown of all runs lies behind the clock: more runs or envs than the fold judges in "
            "time, a machine with other work, or a slow disk. New runs are listed late; nothing is lost."
        ),
        confirm=(
            "See `overwatch_tower_frame_timestamp_seconds` against the clock, and of the exporter "
            "`aggregator` `overwatch_exporter_queue_batches`; `curl :13133` has the age of the latest frame."
        ),
        act=(
            "Give the collector a core of its own, or some of the runs to a second one. After a restart or a "
            "burst it works off what waits by itself."
        ),
    ),
    Runbook(
        code="exporter-queue-full",
        means="More than four fifths of what may wait for an exporter waits: soon senders are refused.",
        confirm="See `otelcol_exporter_queue_size` beside its capacity, by exporter; is it still growing?",
        act="Look whether the disk of that exporter is slow or full; give it more room only after that.",
    ),
    Runbook(
        code="storage-filling",
        means=(
            "The collector's disk is nearly full: others have filled the volume, or the journal cannot let "
            "go of what is in it. What is stored stays; without any room senders must wait."
        ),
        confirm=(
            "See `overwatch_storage_room_bytes` beside `overwatch_storage_max_bytes`, and "
            "`overwatch_storage_part_bytes` by part; `overwatch doctor` names the volume."
        ),
        act=(
            "Make room on the volume, enlarge it, or set `extensions.file_storage.budget_mib` to less, so "
            "that what is oldest goes. Where the journal alone is full, look which exporter "
            "does not read it: `overwatch_exporter_queue_batches`. No acknowledged record is lost."
        ),
    ),
    Runbook(
        code="journal-slow",
        means=(
            "The disk of the collector's journal takes seconds for a write. What is sent is acknowledged and "
            "shown as much later, and refused (503) while the disk has not answered for five seconds. "
            "Trainers go on at their pace and keep what waits; nothing is lost."
        ),
        confirm=(
            "See `overwatch_journal_waiting_seconds`, the time of the write that is under way, and "
            "`overwatch_journal_commit_seconds_total` over `overwatch_journal_commits_total`, the mean; the "
            "log names the folder. `overwatch doctor --only disk` measures a write of its own."
        ),
        act=(
            "Look who else writes to that disk (`iostat -x 1`, `/proc/pressure/io`), and whether a cloud "
            "volume has used up its credit. Move the other, or give the data folder a faster volume; with "
            "`extensions.file_storage.durability: fast` a sync comes twice a second, not with each write. "
            "Do not kill the collector: what it has acknowledged is kept, and it goes on by itself."
        ),
    ),
    Runbook(
        code="certificate-ending",
        means="A certificate of the collector ends within two weeks: from then on no client connects.",
        confirm="See `overwatch_certificate_end_timestamp_seconds` on its own page, by file.",
        act=(
            "Replace the file; the collector takes it up by itself. `helm upgrade` renews a certificate that "
            "the chart made; one of cert-manager is renewed by it, so look why it was not."
        ),
    ),
    Runbook(
        code="telemetry-dropped",
        means="The trainer's side dropped records so as not to slow training: numbers are thinner.",
        confirm="See `overwatch_sdk_dropped_total` of the run; the header of its terminal shows how many.",
        act="Look at the exporter process on the trainer's node: has it CPU, does the collector answer it?",
    ),
    Runbook(
        code="series-dropped",
        means="The page of runs is full: some series of the runs with the oldest data are not on it.",
        confirm="See `overwatch_prometheus_series` beside `overwatch_prometheus_series_limit`.",
        act="Raise `exporters.prometheus.max_series`, lower `per_env`, or give runs to a second collector.",
    ),
    Runbook(
        code="run-unjudged",
        means="A run cannot be judged or shown, for a fault of Overwatch that its numbers found.",
        confirm="See `overwatch_tower_unjudged_total`; the collector's log names the run and the place.",
        act=(
            "Report the line of the log. What the run sends is recorded meanwhile, and other runs are shown; "
            "a collector without the fault shows all of it."
        ),
    ),
    Runbook(
        code="runs-refused",
        means="As many runs live as the collector may have in memory; records of new runs are left out.",
        confirm="See `overwatch_tower_refused_runs_total`; `curl :13133` and the log name the limit.",
        act=(
            "Raise `exporters.aggregator.max_runs` with memory for it, or give runs to another collector. "
            "The recording holds the runs that were refused: `overwatch replay` shows them."
        ),
    ),
    Runbook(
        code="checkpoint-stale",
        means="A run that saved checkpoints has saved none for long: a crash now would cost all since then.",
        confirm="The age beside the checkpoint in the header; free space where the newest one lies.",
        act="Make room or mend the path where checkpoints go, and save one by hand if the trainer can.",
    ),
    Runbook(
        code="updates-absent",
        means="The run speaks, and yet no update of its policy came for long.",
        confirm="See `overwatch_run_updates_total` of the run; what its ranks do, in the terminal.",
        act="Look at the phase that each rank is in: an env, a loader or a collective that never comes back.",
    ),
    Runbook(
        code="trust-region-burn",
        means=(
            "Too large a share of the updates of the last hours was beyond the critical limit of KL: at this "
            "pace the run leaves its trust region more often than it may in all."
        ),
        confirm="See `overwatch_policy_updates_beyond_limit_total` beside `overwatch_run_updates_total`.",
        act="Lower the learning rate or the number of epochs; set a `target_kl` where there is none.",
    ),
    Runbook(
        code="useful-time-burn",
        means=(
            "Too large a share of the run's time brought no useful update: it was silent or lost, made no "
            "update, or went on under a critical finding."
        ),
        confirm="See `overwatch:run_useful:now` over time beside the run's state, updates and open findings.",
        act=(
            "Look at what the run did while it was 0: findings name what to do; without one look at the "
            "phase that each rank was in, and at how often the run was started anew."
        ),
    ),
    Runbook(
        code="policy-row",
        means="A number of the policy that only the run's own preset judges is beyond its limit.",
        confirm="The label `code` names it: its own heading here states how to confirm it.",
        act="Go to the heading that the label `code` names, and do what it states.",
    ),
)
