#!/usr/bin/env python3
"""The kit on a machine of its own: where it looks for libraries, and what a small card leaves out.  Needs no GPU and no PyTorch."""
import argparse
import contextlib
import io
import json
import pathlib
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "kit"))
import lanes  # noqa: E402
import programs  # noqa: E402
import run_kit  # noqa: E402

# Stands for the program: refuses, as a run on a card of 24 GB, or fails.
PROGRAM = "#!/bin/sh\necho '{words}'\nexit {code}\n"


class TestKit(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)

    def unpacked(self, words="", code=0, only=()):
        """The kit of a `program` that says `words`, with a site folder of PyTorch that lacks everything but names."""
        site = self.folder / "site"
        for name in ("torch/lib", "nvidia/cu13/lib", "nvidia/nccl/lib"):
            (site / name).mkdir(parents=True)
        (site / "torch/__init__.py").touch()
        (self.folder / "bin").mkdir()
        (self.folder / "bin/sluice").write_text(PROGRAM.format(words=words, code=code), encoding="ascii")
        (self.folder / "bin/sluice").chmod(0o755)
        with tarfile.open(self.folder / "kit.tar.xz", "w:xz") as archive:
            archive.add(self.folder / "bin", "bin")
        sys.path.insert(0, str(site))
        self.addCleanup(sys.path.remove, str(site))
        before, programs.HERE = programs.HERE, self.folder
        self.addCleanup(setattr, programs, "HERE", before)
        return programs.Kit(argparse.Namespace(out=self.folder / "out", backend="auto", build=None, jobs=1, seconds=600, only=list(only)))

    def step(self, kit, name):
        """(failed, its log) of a step."""
        with contextlib.redirect_stdout(io.StringIO()):
            failed, _ = run_kit.run_step(kit, name, self.folder)
        return failed, (self.folder / f"{name}.txt").read_text(encoding="utf-8")

    def test_libraries_of_nvidia_are_found_beside_torch(self):
        folders = self.unpacked().env["LD_LIBRARY_PATH"].split(":")
        for name in ("torch/lib", "nvidia/cu13/lib", "nvidia/nccl/lib"):
            self.assertIn(str(self.folder / "site" / name), folders)

    def test_what_does_not_fit_the_card_is_left_out(self):
        kit = self.unpacked("GPU 0: a step needs 38.0 GiB a rank, 15.0 GiB more than the 23.0 GiB that are free on the card.", 3)
        for name, runs in (("memory", 4), ("speed", len(programs.SPEED)), ("big", 1)):
            failed, log = self.step(kit, name)
            self.assertFalse(failed, log)
            self.assertGreaterEqual(log.count("does not fit this machine"), runs, log)

    def test_the_launchers_refusal_counts_as_well(self):
        kit = self.unpacked("GPU memory: a step needs 38.0 GiB a rank, 14.0 GiB more than the 24.0 GiB of the card.", 3)
        failed, log = self.step(kit, "big")
        self.assertFalse(failed, log)
        self.assertIn("does not fit this machine", log)

    def test_a_host_that_is_too_small_counts_as_well(self):
        failed, log = self.step(self.unpacked("memory.host: the ranks of a host need 106 GiB of its memory, and here are 60 GiB free", 3), "big")
        self.assertFalse(failed, log)
        self.assertEqual(log.count("does not fit this machine"), 7, log)

    def test_only_leaves_out_other_runs(self):
        kit = self.unpacked("memory.host: the ranks of a host need 106 GiB of its memory, and here are 60 GiB free", 3, ["8b-layer", "1558m-in"])
        for name, runs in (("big", 3), ("memory", 1)):
            failed, log = self.step(kit, name)
            self.assertFalse(failed, log)
            self.assertEqual(log.count("does not fit this machine"), runs, log)

    def test_only_without_a_run_fails(self):
        kit = self.unpacked(only=["9b"])
        for name in ("parity", "nccl", "big"):
            failed, log = self.step(kit, name)
            self.assertTrue(failed, log)
            self.assertIn("no compared or measured run has a text of --only in its name: 9b", log)
        self.assertIn("there is no sluice_test_cuda_kernels", self.step(kit, "kernels")[1])

    def test_a_fault_of_the_kit_fails_its_step_alone(self):
        failed, log = self.step(self.unpacked("no object of JSON", 0), "big")  # and no file of a run
        self.assertTrue(failed)
        self.assertIn("FAILED: FileNotFoundError", log)

    def test_operations_that_moved_nothing_are_no_rate(self):
        trace = self.folder / "trace.json"
        events = [{"ph": "X", "pid": 0, "cat": "d2h", "ts": ts, "dur": dur, "args": {"moved_bytes": 16 << 20}} for ts, dur in ((0, 400), (500, 0.2))]
        trace.write_text(json.dumps(events), encoding="ascii")
        self.assertIn("d2h 41.9 GB/s, busy 80%", lanes.rates(trace))

    def test_a_run_that_ends_out_of_memory_fails(self):
        kit = self.unpacked("the device ran out of memory in a step", 3)
        for name in ("memory", "speed", "big"):
            self.assertTrue(self.step(kit, name)[0])


if __name__ == "__main__":
    unittest.main()
