#!/usr/bin/env python3
"""The parts of cmake/package that need no compiler and no network."""
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import unittest
import zipfile
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "cmake", "package"))

import archive  # noqa: E402
import building  # noqa: E402
import docker_folder  # noqa: E402
import package  # noqa: E402
import wheel_file  # noqa: E402


class Packing(unittest.TestCase):
    def setUp(self):
        self.top = self.enterContext(tempfile.TemporaryDirectory())
        self.said = io.StringIO()
        self.enterContext(contextlib.redirect_stderr(self.said))

    def put(self, name, text="", mode=0o644):
        path = os.path.join(self.top, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(path, mode)
        return path

    def build(self, device="auto"):
        return building.Build(folder=os.path.join(self.top, "build"), torch_root=os.path.join(self.top, "site", "torch"),
                              device=device)

    def test_architectures_that_the_toolkit_lacks_are_left_out(self):
        known = {"75", "80", "90", "100"}
        self.assertEqual(building.chosen_architectures(("80", "90"), known), "80-real;90")
        self.assertEqual(self.said.getvalue(), "")
        self.assertEqual(building.chosen_architectures(building.ARCHITECTURES, known), "80-real;90-real;100")
        self.assertIn("no code for sm_120: left out", self.said.getvalue())
        with self.assertRaises(building.PackageError) as error:
            building.chosen_architectures(("70",), known)
        self.assertIn("compiles for sm_75, sm_80, sm_90, sm_100 only", str(error.exception))

    def test_a_toolkit_is_asked_for_its_architectures(self):
        nvcc = self.put("nvcc", '#!/bin/sh\n[ "$1" = --list-gpu-code ] && printf "sm_80\\nsm_90\\nsm_90a\\n"\n', 0o755)
        self.assertEqual(building.toolkit_architectures(nvcc), {"80", "90", "90a"})

    def test_arguments(self):
        args = package.read_arguments(["wheel", "--architectures", "120,sm_80,80"])
        self.assertEqual((args.what, args.device, args.architectures), ("wheel", "auto", ("80", "120")))
        for wrong in ([], ["tar"], ["wheel", "--device", "tpu"], ["wheel", "--architectures", "Hopper"],
                      ["wheel", "--architectures", ""]):
            with self.assertRaises(SystemExit) as end:
                package.read_arguments(wrong)
            self.assertEqual(end.exception.code, 2, wrong)

    def test_cuda_without_a_toolkit_is_refused(self):
        with mock.patch.object(building, "find_nvcc", return_value=None):
            with self.assertRaises(building.PackageError) as error:
                building.configure(self.build("cuda"))
        self.assertEqual(error.exception.exit_code, 2)
        self.assertIn("pack with --device cpu", str(error.exception))

    def test_a_tool_that_fails_shows_its_last_lines(self):
        with self.assertRaises(building.PackageError) as error:
            building.run([sys.executable, "-c", "print('the reason'); raise SystemExit(3)"], "the tool",
                         os.path.join(self.top, "tool.log"))
        self.assertIn("the tool failed", str(error.exception))
        self.assertIn("the reason", self.said.getvalue())

    def test_the_record_names_every_file(self):
        tree = os.path.join(self.top, "tree")
        self.put("site/torch/version.py", "__version__ = '2.11.0+cu130'\ncuda = '13.0'\n")
        self.put("tree/sluice/bin/sluice", "x", 0o755)
        with mock.patch.object(wheel_file.licences, "linked_files", return_value=[]):
            wheel_file.stage_metadata(self.build(), tree)
        info = "sluice-" + building.version_of() + ".dist-info"
        with open(os.path.join(tree, info, "RECORD"), encoding="utf-8") as stream:
            recorded = [line.split(",")[0] for line in stream.read().splitlines()]
        self.assertEqual(sorted(recorded), wheel_file.files_below(tree))
        with open(os.path.join(tree, info, "METADATA"), encoding="utf-8") as stream:
            metadata = stream.read()
        for part in ("Name: sluice\n", "Requires-Dist: torch==2.11.0\n", "License-Expression: Apache-2.0\n",
                     "License-File: LICENSE\n", "\n\n# Sluice\n"):
            self.assertIn(part, metadata)

    def test_the_wheel_keeps_the_mode_of_the_program(self):
        self.put("tree/sluice/bin/sluice", "x", 0o755)
        self.put("tree/sluice/a.py", "x")
        wheel = os.path.join(self.top, "a.whl")
        wheel_file.zip_folder(os.path.join(self.top, "tree"), wheel)
        with zipfile.ZipFile(wheel) as packed:
            self.assertEqual(packed.namelist(), ["sluice/a.py", "sluice/bin/sluice"])
        archive.unpack_wheel(wheel, os.path.join(self.top, "out"))
        modes = [os.stat(os.path.join(self.top, "out", "sluice", n)).st_mode & 0o777 for n in ("a.py", "bin/sluice")]
        self.assertEqual(modes, [0o644, 0o755])

    def test_nvidia_libraries_that_cannot_be_had(self):
        with self.assertRaises(building.PackageError) as error:
            archive.fetch_nvidia(self.build(), os.path.join(self.top, "site"))
        self.assertEqual(error.exception.exit_code, 2)
        self.assertIn("--device cpu", str(error.exception))
        self.put("site/nvidia/cudnn/lib/libcudnn.so.9")
        archive.fetch_nvidia(self.build(), os.path.join(self.top, "site"))

    def packed_archive(self, device="cpu"):
        """An archive whose program prints its environment."""
        top = os.path.join(self.top, "made", "sluice-x")
        self.put("made/sluice-x/lib/sluice/bin/sluice", textwrap.dedent("""\
            #!/bin/sh
            printf '%s\\n' "$SLUICE_TORCH_ROOT" "$SLUICE_SHIPPED" "$LD_LIBRARY_PATH" "${SLUICE_CUDA_REFUSED-}" "$@"
            exit 7
            """), 0o755)
        self.put("made/sluice-x/lib/sluice/configs/quickstart.yaml", "train: {}\n")
        build = self.build(device)
        if device == "cuda":
            self.put("build/libsluice_cuda.so")
        archive.write_front(build, top)
        path = os.path.join(self.top, "x.tar.gz")
        archive.pack(top, path)
        return path

    def start(self, command, **environment):
        return subprocess.run([*command, "a b"], capture_output=True, text=True, check=False, cwd="/",
                              env={"PATH": os.environ["PATH"], **environment})

    def test_the_archive_runs_anywhere(self):
        folder = os.path.join(self.top, "an other folder")
        with tarfile.open(self.packed_archive()) as packed:
            self.assertEqual({e.uid for e in packed}, {0})
            packed.extractall(folder)
        home = os.path.join(folder, "sluice-x")
        bin_folder = os.path.join(self.top, "bin")
        os.makedirs(bin_folder)
        os.symlink(os.path.join(home, "sluice"), os.path.join(self.top, "first"))
        os.symlink("../first", os.path.join(bin_folder, "sluice"))
        for command in (os.path.join(home, "sluice"), os.path.join(bin_folder, "sluice")):
            done = self.start([command], LD_LIBRARY_PATH="/mine")
            self.assertEqual(done.returncode, 7, done.stderr)
            self.assertEqual(done.stdout.splitlines(),
                             [f"{home}/lib/torch", f"{home}/lib/sluice", f"{home}/lib/torch/lib:/mine",
                              "this archive is for CPUs; take the one for CUDA", "a b"])
        self.assertTrue(os.path.exists(os.path.join(home, "configs", "quickstart.yaml")))
        self.assertTrue(os.path.exists(os.path.join(home, "LICENSE")))

    def test_the_archive_for_cuda_refuses_no_gpu(self):
        with tarfile.open(self.packed_archive("cuda")) as packed:
            packed.extractall(self.top)
        lines = self.start([os.path.join(self.top, "sluice-x", "sluice")]).stdout.splitlines()
        self.assertEqual(lines[2:4], [f"{self.top}/sluice-x/lib/torch/lib", ""])

    def test_a_folder_with_a_colon(self):
        with tarfile.open(self.packed_archive()) as packed:
            packed.extractall(os.path.join(self.top, "a:b"))
        done = self.start([os.path.join(self.top, "a:b", "sluice-x", "sluice")])
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("has a colon in its path", done.stderr)

    def test_docker_gets_what_it_compiles(self):
        folder = docker_folder.make_docker_folder(self.top)
        source = os.path.join(folder, "source")
        for name in ("sluice", "CMakeLists.txt", "cmake/package/package.py", "configs/quickstart.yaml", "LICENSE",
                     "runtime/cli/CMakeLists.txt", "docs/install.md", "kernels/cpu/CMakeLists.txt"):
            self.assertTrue(os.path.exists(os.path.join(source, name)), name)
        for name in ("build", "third_party", "tests", ".git", "dist"):
            self.assertFalse(os.path.exists(os.path.join(source, name)), name)
        self.assertTrue(os.access(os.path.join(source, "sluice"), os.X_OK))
        with open(os.path.join(folder, "Dockerfile"), encoding="utf-8") as stream:
            copied = [line.split()[1] for line in stream if line.startswith("COPY") and "--from" not in line]
        self.assertEqual(copied, ["source"])
        shutil.rmtree(folder)


if __name__ == "__main__":
    unittest.main()
