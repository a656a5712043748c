"""The manifest of the JobSet: its own fields by their types, the Job inside by Kubernetes' schema."""

import re
from typing import Any, Final

import jsonschema
import kubernetes_validate
import yaml

from tests.libraries.examples import FOLDER

MANIFEST: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "launchers" / "jobset.yaml").read_text())
JOBSET: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "jobset.x-k8s.io/v1alpha2"},
        "kind": {"const": "JobSet"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "failurePolicy": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"maxRestarts": {"type": "integer", "minimum": 0}},
                },
                "replicatedJobs": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["name", "template"],
                        "properties": {
                            "name": {"type": "string"},
                            "replicas": {"type": "integer", "minimum": 0},
                            "template": {"type": "object"},
                        },
                    },
                },
            },
        },
    },
}
"""The fields of `jobset.x-k8s.io/v1alpha2` that the recipe uses; a misspelt one is an error."""
(JOB,) = MANIFEST["spec"]["replicatedJobs"]
(CONTAINER,) = JOB["template"]["spec"]["template"]["spec"]["containers"]


def test_the_manifest_is_one_that_kubernetes_takes() -> None:
    """A JobSet whose template is a Job of `batch/v1`."""
    jsonschema.validate(MANIFEST, JOBSET)
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "trainer"}, **JOB["template"]}
    kubernetes_validate.validate(job, "1.31", strict=True)


def test_what_is_used_in_a_value_is_defined_before_it() -> None:
    """Kubernetes leaves `$(NAME)` as it stands where no variable above has that name."""
    defined: set[str] = set()
    for one in CONTAINER["env"]:
        assert set(re.findall(r"\$\((\w+)\)", one.get("value", ""))) <= defined
        defined.add(one["name"])
    assert {"OVERWATCH_RUN_ID", "OVERWATCH_ATTEMPT"} <= defined
    assert set(re.findall(r"\$\((\w+)\)", " ".join(CONTAINER["args"]))) <= defined


def test_all_pods_are_ranks_of_the_run() -> None:
    """As many torchruns meet as there are pods, at the first pod of the first Job."""
    arguments = dict(word.removeprefix("--").split("=") for word in CONTAINER["args"] if "=" in word)
    assert JOB["template"]["spec"]["completionMode"] == "Indexed"
    assert int(arguments["nnodes"]) == JOB["template"]["spec"]["completions"]
    assert arguments["master-addr"] == f"$(JOBSET)-{JOB['name']}-0-0.$(JOBSET)"
    assert arguments["nproc-per-node"] == CONTAINER["resources"]["limits"]["nvidia.com/gpu"]
