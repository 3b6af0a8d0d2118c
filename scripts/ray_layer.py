"""Measures one run on several workers of a Ray cluster on this machine, beside the same run in one process of one core.

    python3 scripts/encrypted_run.py --layers 1 --rows 128      # makes the files, in out/encrypted/1x128
    python3 scripts/ray_layer.py out/encrypted/1x128 [--workers 2,4] [--out out/ray.jsonl] [--store GIB]

Needs a Python with the package and Ray: a wheel of `make wheel`, `pip install 'hushed[ray]'`. One thread a worker; where
there are enough cores, each is kept to its own. A row of JSON for each run: seconds, those of the simulation at the pace
of the run in one process, bytes moved and planned, what the workers computed and waited. Exits with 1 if a reply has
other bytes. Each worker has keys and model in memory, and the store of Ray what is alive between ranges.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import hushed.ray


def alone(folder, files, out):
    """The steps of the run in one process on one core: their seconds, and those of the plan."""
    named = [f"--{name.replace('_', '-')}={value}" for name, value in {**files, "out": out}.items()]
    command = [sys.executable, "-m", "hushed", "run", str(folder), *named, "--threads=1", "--steps", "--json"]
    core = min(os.sched_getaffinity(0))
    done = subprocess.run(["taskset", "-c", str(core), *command], check=True, stdout=subprocess.PIPE, text=True)
    *steps, last = [json.loads(line) for line in done.stdout.splitlines()]
    seconds, planned = (sum(row["step"][name] for row in steps) for name in ("seconds", "planned_seconds"))
    return {
        "run": "one process", "cores": 1, "seconds": last["seconds"], "ready": last["seconds"] - seconds,
        "computing": seconds, "planned_seconds": planned, "peak_memory": last["peak_memory"],
    }


def together(folder, files, out, workers, one):
    """The run on so many workers."""
    pinned = workers <= len(os.sched_getaffinity(0))
    share = {"cores_per_worker": 1} if pinned else {"threads": 1}
    report = hushed.ray.run(folder, **files, out=out, workers=workers, **share)
    seconds = report.seconds - report.ready
    predicted = report.planned_seconds * one["computing"] / one["planned_seconds"]
    computing = sum(report.busy)
    return {
        "run": "workers", "workers": workers, "pinned": pinned, "seconds": report.seconds, "ready": report.ready,
        "computing": computing, "computing_more": computing / one["computing"] - 1,
        "waiting": workers * seconds - computing, "times_as_fast": one["computing"] / seconds,
        "planned_seconds": report.planned_seconds, "predicted_seconds": predicted, "against_predicted": seconds / predicted - 1,
        "ranges": report.ranges, "given_again": report.given_again, "bytes_made": report.bytes_made,
        "bytes_moved": report.bytes_moved, "planned_moved": report.planned_moved,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=pathlib.Path, help="folder of encrypted_run.py, with model, manifest, keys and request")
    parser.add_argument("--workers", default="2,4", help="numbers of workers (default 2,4)")
    parser.add_argument("--out", type=pathlib.Path, help="a file that rows are added to")
    parser.add_argument("--store", type=float, default=4, help="GiB of Ray's object store (default 4)")
    options = parser.parse_args()
    work, counts = options.work.absolute(), [int(count) for count in options.workers.split(",")]
    replies = pathlib.Path(tempfile.mkdtemp(dir=work))
    files = {
        "manifest": work / "manifest.json", "calibration": work / "model.json", "keys": work / "keys" / "evaluation.keys",
        "request": work / "request", "secret": replies / "reply.secret",
    }
    same = True

    def told(row):
        line = json.dumps(row)
        print(line, flush=True)
        if options.out:
            with options.out.open("a", encoding="utf-8") as rows:
                rows.write(line + "\n")

    one = alone(work / "model", files, replies / "one")
    told(one)
    import ray

    ray.init(num_cpus=max(counts), include_dashboard=False, object_store_memory=int(options.store * 2**30), log_to_driver=False)
    for workers in counts:
        out = replies / f"workers-{workers}"
        row = together(work / "model", files, out, workers, one)
        row["same_reply"] = out.read_bytes() == (replies / "one").read_bytes()
        same &= row["same_reply"]
        told(row)
    ray.shutdown()
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
