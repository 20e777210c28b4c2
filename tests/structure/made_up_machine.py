"""A machine for tests of ./sluice: a checkout and a PATH on which every tool only notes that it was called."""
import os
import shutil
import subprocess
import tempfile
import textwrap
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# What a Debian has before anything is installed and ./sluice may rely on.
PRESENT = ("bash", "env", "readlink", "find", "flock", "mkdir", "cat", "tail", "grep", "sed", "nproc", "awk",
           "uname", "mv", "rm", "touch", "chmod", "sleep", "cp")
TOOLS = ("cmake", "ninja", "g++", "python3", "ctest")

# Every stub notes its call, then does the least that its successors look at.
STUBS = {
    "dpkg-query": 'for p in "$@"; do [[ -e $STATE/installed/$p ]] && printf "ii :%s " "$p"; done; exit 0',
    "apt-get": """
        [[ -e $STATE/apt-fails ]] && { echo "E: no network"; exit 100; }
        [[ " $* " == *" --assume-no "* ]] && { echo "Need to get 9 MB of archives."; exit 1; }
        [[ " $* " == *" install "* ]] || exit 0
        for p in "$@"; do touch "$STATE/installed/$p"; done
        for t in cmake ninja g++ python3 ctest; do cp "$STATE/stubs/$t" "$BIN/$t"; done""",
    "sudo": '[[ $1 == -n ]] && shift; exec "$@"',
    "python3": """
        if [[ $* == *"-m pip"* ]]; then [[ -e $STATE/installed/python3-pip ]]; exit; fi
        [[ $* == *--arrow* ]] && { mkdir -p "$2/pyarrow/include/parquet/arrow"; touch "$2/pyarrow/include/parquet/arrow/reader.h"; exit; }
        [[ $* == *--check* ]] && { [[ -e $2/torch/lib/libtorch_cpu.so ]]; exit; }
        [[ -e $STATE/fetch-fails ]] && exit 4
        mkdir -p "$2/torch/lib"; touch "$2/torch/lib/libtorch_cpu.so" """,
    "cmake": """
        [[ $* =~ -B\ ([^ ]+) ]]; folder=${BASH_REMATCH[1]}
        [[ $* == *--fresh* ]] && rm -f "$folder/CMakeCache.txt"
        [[ -e $STATE/cmake-fails ]] && { echo "CMake Error: bad"; exit 1; }
        mkdir -p "$folder"; echo "$*" >"$folder/CMakeCache.txt"; touch "$folder/build.ninja" """,
    "ninja": """
        [[ $1 == -C ]] && cd "$2"
        if [[ " $* " == *" -n "* ]]; then
          [[ -e $STATE/nothing-to-do ]] && echo "ninja: no work to do."; exit 0
        fi
        if [[ -e $STATE/ninja-fails ]]; then
          echo "[1/2] Building CXX object a.o"; echo "FAILED: b.o"; echo "b.cpp:1: error: bad"; exit 1
        fi
        [[ -e $STATE/ninja-is-slow ]] && { echo "[25/100] Building CXX object a.o"; sleep 3; }
        mkdir -p runtime/cli
        [[ -e $STATE/builds-the-module ]] && touch libsluice_cuda.so
        printf '#!/usr/bin/env bash\\necho "program $*"; exit 7\\n' > runtime/cli/sluice
        chmod +x runtime/cli/sluice""",
    "ctest": "exit 0",
    "g++": "exit 0",
}


class MadeUpMachine(unittest.TestCase):
    def setUp(self):
        self.top = self.enterContext(tempfile.TemporaryDirectory())
        self.root = os.path.join(self.top, "checkout")
        self.bin = os.path.join(self.top, "bin")
        self.state = os.path.join(self.top, "state")
        for folder in (self.bin, os.path.join(self.state, "installed"), os.path.join(self.state, "stubs"),
                       os.path.join(self.root, "zero"), os.path.join(self.root, "cmake")):
            os.makedirs(folder)
        shutil.copy(os.path.join(ROOT, "sluice"), self.root)
        shutil.copy(os.path.join(ROOT, "cmake", "wrapper_build.bash"), os.path.join(self.root, "cmake"))
        self.source = os.path.join(self.root, "zero", "a.cpp")
        for path in (self.source, os.path.join(self.root, "CMakePresets.json"),
                     os.path.join(self.root, "CMakeLists.txt")):
            self.put(path)
        for tool in PRESENT:
            os.symlink(shutil.which(tool), os.path.join(self.bin, tool))
        for tool, body in STUBS.items():
            text = f'#!/usr/bin/env bash\necho "{tool} $*" >>"$STATE/calls"\n{textwrap.dedent(body)}\n'
            path = os.path.join(self.state, "stubs", tool)
            self.put(path, text)
            os.chmod(path, 0o755)
            if tool not in TOOLS:
                shutil.copy(path, self.bin)

    @staticmethod
    def put(path, text=""):
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)

    def flag(self, name):
        self.put(os.path.join(self.state, name))

    def environment(self, **extra):
        return {"PATH": self.bin, "BIN": self.bin, "STATE": self.state, "SLUICE_CUDA": "OFF",
                "SLUICE_PYTHON": "python3", **extra}

    def sluice(self, *args, **extra):
        return subprocess.run([os.path.join(self.root, "sluice"), *args], env=self.environment(**extra),
                              capture_output=True, text=True, timeout=60, check=False)

    def calls(self):
        """The tools called since the last question, in order."""
        path = os.path.join(self.state, "calls")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as stream:
            lines = stream.read().splitlines()
        os.remove(path)
        return lines

    def ready(self):
        self.assertEqual(self.sluice("train", "x.yaml").returncode, 7)
        self.calls()
