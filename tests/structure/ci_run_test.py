#!/usr/bin/env python3
""".ci/run in a folder made up here: ./sluice and ctest only print the summaries that they would."""
import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

FIRST_ATTEMPT = """#!/usr/bin/env bash
mkdir -p build/release/Testing/Temporary
echo '2:slow_one' >build/release/Testing/Temporary/LastTestsFailed.log
echo '50% tests passed, 1 tests failed out of 2'
exit 8
"""


class Attempts(unittest.TestCase):
    def setUp(self):
        self.root = self.enterContext(tempfile.TemporaryDirectory())
        os.makedirs(os.path.join(self.root, ".ci"))
        os.makedirs(os.path.join(self.root, "bin"))
        shutil.copy(os.path.join(ROOT, ".ci", "run"), os.path.join(self.root, ".ci"))
        self.put("sluice", FIRST_ATTEMPT)

    def put(self, name, text):
        path = os.path.join(self.root, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(path, 0o755)

    def run_lane(self, lane):
        done = subprocess.run([os.path.join(self.root, ".ci", "run"), lane], capture_output=True, text=True,
                              env={**os.environ, "PATH": os.path.join(self.root, "bin") + ":" + os.environ["PATH"]},
                              timeout=60, check=False)
        return done.returncode, done.stdout.splitlines()

    def run_tests(self, second_attempt):
        self.put("bin/ctest", "#!/usr/bin/env bash\n" + second_attempt)
        status, lines = self.run_lane("test")
        return status, lines[-2:]

    def test_a_second_attempt_that_passes_is_flaky_and_counted(self):
        for times in (1, 2):
            self.assertEqual(self.run_tests("echo '100% tests passed, 0 tests failed out of 1'"),
                             (0, [f"flaky: 1: slow_one ({times}x in this checkout)", "2 passed, 0 failed"]))

    def test_a_second_attempt_that_fails_is_a_failure(self):
        self.assertEqual(self.run_tests("echo '0% tests passed, 1 tests failed out of 1'; exit 8"),
                         (1, ["flaky: 0", "1 passed, 1 failed"]))

    def test_the_lane_headers_builds_what_the_script_names(self):
        self.put("bin/ninja", '#!/usr/bin/env bash\necho "ninja $*"\n[[ $* != *broken* ]]')
        os.makedirs(os.path.join(self.root, "tests", "structure"))
        for script, status, built in (("print('a.o', 'b.o', sep='\\n')", 0, ["a.o b.o"]), ("print('broken.o')", 1, ["broken.o"]),
                                      ("", 0, []), ("import sys; sys.exit(1)", 1, [])):
            self.put("tests/structure/changed_headers.py", script)
            done, lines = self.run_lane("headers")
            self.assertEqual(done, status, lines)
            ran = [line.split(" ", 7)[-1] for line in lines if line.startswith("ninja ")]
            self.assertEqual(ran, built, lines)
        done, lines = self.run_lane("headers_all")
        self.assertEqual(done, 0)
        self.assertTrue(any(line.startswith("ninja ") and line.endswith(" checkheaders") for line in lines), lines)


if __name__ == "__main__":
    unittest.main()
