"""Run as a program: a learner that goes on where the last one was killed, and publishes as fast as it can."""

import sys
from pathlib import Path

from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.publisher import Publisher
from tests.overwatch_rl.weights.made import LONG_S, Run, tensors

publisher = Publisher(Run(Path(sys.argv[1])).publishing(), busy_s=LONG_S)
version = Version(0, 0).resumed(publisher.known)
while True:
    publisher.publish(version, tensors(version))
    publisher.finished(LONG_S)
    version = Version(version.lineage, version.number + 1)
