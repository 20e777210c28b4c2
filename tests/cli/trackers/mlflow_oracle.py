#!/usr/bin/env python3
"""MLflow itself reads what output.mlflow writes: experiments, runs, params, tags and the history of each metric.

Usage: mlflow_oracle.py SLUICE.  Ends with 77 (skipped) where mlflow is not installed.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # MLflow 3.13 and later ask for it
    import mlflow
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

CONFIG = """model: {type: llama, layers: 1, hidden: 32, heads: 2, seq: 32}
data:
  text: [text.txt]
  valid_sets: [{name: "code", path: text.txt}, {name: "a/b \u00e4", path: text.txt}]
train: {steps: 6, micro_batch: 1, eval_steps: 1, eval_every: 2}
schedule: {type: constant}
launch: {nproc: 1, threads: 1}
checkpoint: {every: 2, async: false}
output: {dir: run, mlflow: mlruns}
"""


def train(sluice, scratch, *arguments, **environment):
    return subprocess.run([sluice, "train", "c.yaml", *arguments], cwd=scratch, env={**os.environ, **environment},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")


def only_run(client):
    experiment = client.get_experiment_by_name("sluice")
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 1, runs
    return runs[0]


def main(sluice):
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        (scratch / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 400)
        (scratch / "c.yaml").write_text(CONFIG)
        killed = train(sluice, scratch, SLUICE_FAILPOINTS="engine.step@3:delay=3000;engine.step@4:kill")
        assert killed.returncode == 5, killed.stdout
        client = mlflow.MlflowClient(tracking_uri=str(scratch / "mlruns"))
        before = only_run(client)
        assert before.info.status == "FAILED", before.info
        resumed = train(sluice, scratch, "--resume", "auto")
        assert resumed.returncode == 0, resumed.stdout
        run = only_run(client)
        assert run.info.run_id == before.info.run_id
        assert run.info.status == "FINISHED" and run.info.end_time >= run.info.start_time, run.info
        assert run.data.params["train.steps"] == "6", run.data.params
        assert run.data.params["model.type"] == "llama"
        assert run.data.tags["mlflow.runName"] == run.info.run_name == "run"
        lines = [json.loads(line) for line in (scratch / "run" / "metrics.jsonl").read_text().splitlines()]
        for name, key in (("train/loss", "loss"), ("train/lr", "lr"), ("perf/step_ms", "step_ms")):
            history = client.get_metric_history(run.info.run_id, name)
            assert [(m.step, m.value) for m in history] == [(line["step"], line[key]) for line in lines], name
        history = client.get_metric_history(run.info.run_id, "eval/loss.code")
        assert [m.step for m in history] == [2, 4, 6], history
        assert sum(name.startswith("eval/loss.a_b") for name in run.data.metrics) == 1, run.data.metrics
        for name in run.data.metrics:  # every name passes MLflow's own check when a metric is logged
            client.log_metric(run.info.run_id, name, 1.0, step=7)
        assert client.search_runs([run.info.experiment_id], "params.`train.steps` = '6' and metrics.`train/loss` < 100")
        client.set_terminated(run.info.run_id)
    print(f"mlflow {mlflow.__version__}: one run, {len(run.data.params)} params, {len(run.data.metrics)} metrics")


if __name__ == "__main__":
    main(sys.argv[1])
