"""One clean-up as a process: a job as JSON on the command line, a report as JSON on stdout."""

import sys

import msgspec

from overwatch.background import give_way
from overwatch.recordings.tidy import CompactionJob, Report, tidy


def main() -> int:
    """Do it in the background; exit code 1 when the folder cannot be used."""
    give_way()
    wanted = msgspec.json.decode(sys.argv[1], type=CompactionJob)
    try:
        report = tidy(wanted)
    except OSError as error:
        report = Report(error=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(report))
    return 0 if report.error is None else 1


if __name__ == "__main__":
    sys.exit(main())
