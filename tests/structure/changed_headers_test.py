#!/usr/bin/env python3
"""changed_headers.py in a repository made up here."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "changed_headers.py")
FILES = {
    "CMakeLists.txt": "", "cmake/Flags.cmake": "", "zero/CMakeLists.txt": "", "README.md": "",
    "base/error.hpp": "#pragma once\n",
    "base/text.hpp": '#pragma once\n#include "base/error.hpp"\n',
    "zero/plan.hpp": '#pragma once\n#include <vector>\n#  include "base/text.hpp"\n',
    "zero/plan.cpp": '#include "zero/plan.hpp"\n',
    "zero/table.inc": "1, 2\n",
    "zero/rows.hpp": '#include "zero/table.inc"\n',
    "zero/some.hpp": '#if __has_include("zero/other.hpp")\n#endif\n',
}
HEADERS = {path for path in FILES if path.endswith(".hpp")}


class Chosen(unittest.TestCase):
    def setUp(self):
        self.root = self.enterContext(tempfile.TemporaryDirectory())
        for path, text in FILES.items():
            self.put(path, text)
        self.put(".gitignore", "build\n")
        self.list_checks(HEADERS)
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "-m", "all")

    def git(self, *arguments):
        subprocess.run(["git", *arguments], cwd=self.root, check=True, stdout=subprocess.DEVNULL)

    def put(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)

    def list_checks(self, headers):
        folder = os.path.realpath(os.path.join(self.root, "build", "check_headers"))
        checks = [(header, f"{folder}/{header.replace('/', '__')}.cpp") for header in headers]
        self.put("build/compile_commands.json", json.dumps(
            [{"file": "/elsewhere/zero__plan.cpp", "command": "c++ -o plan.o -c zero__plan.cpp"},
             *({"file": file, "command": f"c++ -o {header}.o -c {file}"} for header, file in checks)]))

    def chosen(self, commit="HEAD"):
        done = subprocess.run([sys.executable, "-B", SCRIPT, "build", commit], cwd=self.root, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {line.removesuffix(".o") for line in done.stdout.splitlines()}

    def assert_chosen_after(self, path, text, headers):
        self.put(path, text)
        self.assertEqual(self.chosen(), headers)

    def test_nothing_changed(self):
        self.assertEqual(self.chosen(), set())
        self.assert_chosen_after("README.md", "text", set())

    def test_a_header_and_all_that_reach_it(self):
        self.assert_chosen_after("base/error.hpp", "#pragma once\nint x;\n", {"base/error.hpp", "base/text.hpp", "zero/plan.hpp"})

    def test_the_last_of_a_chain_alone(self):
        self.assert_chosen_after("zero/plan.hpp", "#pragma once\n", {"zero/plan.hpp"})

    def test_an_included_file_of_another_kind(self):
        self.assert_chosen_after("zero/table.inc", "3\n", {"zero/rows.hpp"})

    def test_a_header_whose_own_source_changed(self):
        self.assert_chosen_after("zero/plan.cpp", '#include <vector>\n#include "zero/plan.hpp"\n', {"zero/plan.hpp"})

    def test_a_header_whose_own_source_is_gone(self):
        os.remove(os.path.join(self.root, "zero/plan.cpp"))
        self.assertEqual(self.chosen(), {"zero/plan.hpp"})

    def test_what_includes_a_removed_or_renamed_header(self):
        self.git("mv", "base/error.hpp", "base/fault.hpp")
        self.list_checks(HEADERS - {"base/error.hpp"} | {"base/fault.hpp"})
        self.assertEqual(self.chosen(), {"base/fault.hpp", "base/text.hpp", "zero/plan.hpp"})

    def test_a_new_header_and_one_that_looks_for_it(self):
        self.list_checks(HEADERS | {"zero/other.hpp"})
        self.assert_chosen_after("zero/other.hpp", "", {"zero/other.hpp", "zero/some.hpp"})

    def test_a_new_file_that_hides_another_from_its_folder(self):
        self.assert_chosen_after("zero/base/text.hpp", "", {"zero/plan.hpp"})

    def test_an_include_whose_name_a_macro_gives(self):
        self.put("zero/rows.hpp", "#include NAME\n")
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "-m", "macro")
        self.assert_chosen_after("README.md", "text", {"zero/rows.hpp"})

    def test_the_headers_of_a_folder_whose_build_changed(self):
        self.assert_chosen_after("zero/CMakeLists.txt", "set(a b)", {header for header in HEADERS if header.startswith("zero/")})

    def test_all_where_the_flags_may_have_changed(self):
        for path in ("CMakeLists.txt", "cmake/Flags.cmake", "CMakePresets.json", "sluice", ".ci/run"):
            with self.subTest(path):
                self.git("clean", "-q", "-d", "-f")
                self.git("checkout", "-q", ".")
                self.assert_chosen_after(path, "changed", HEADERS)

    def test_all_without_a_commit_to_compare_with(self):
        self.assertEqual(self.chosen("HEAD~1"), HEADERS)
        self.assertEqual(self.chosen("0" * 40), HEADERS)
        self.assertEqual(self.chosen(""), HEADERS)


if __name__ == "__main__":
    unittest.main()
