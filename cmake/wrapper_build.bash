# shellcheck shell=bash
# The part of ./sluice that runs CMake and Ninja; sourced by ./sluice, whose names it uses.
readonly progress_seconds=15  # between two lines that say how far a build is, where stderr is no terminal

# --fresh: found libraries are cached, and another key may mean other libraries.
run_cmake() {
  (cd "$root" && cmake --preset release -B "$1" --fresh "-DTORCH_ROOT=$torch_root" \
    "-DARROW_ROOT=$arrow_root" "-DSLUICE_CUDA=$cuda" "-DSLUICE_UNITY=$unity" \
    "-DSLUICE_UNITY_TESTS=${SLUICE_UNITY_TESTS:-OFF}") >"$log" 2>&1
}

# Another configuration is tried in a folder of its own first: one that fails leaves the build as it was.
configure() {
  [[ -f $build/build.ninja ]] && holds_line "$configured" "$key" && [[ ! $root/CMakePresets.json -nt $configured ]] &&
    return
  local log="$build/configure.log" trial="$build.trial"
  say "configuring"
  [[ $cuda == "${SLUICE_CUDA:-AUTO}" ]] || say "no GPU is visible: the CUDA module waits for one (SLUICE_CUDA=ON builds it now)"
  if [[ -f $build/build.ninja && -f $configured ]]; then
    log="$build/configure-trial.log"
    rm -rf "$trial"
    run_cmake "$trial" || { rm -rf "$trial"; cat "$log" >&2; die 1 "CMake could not configure (above, and $log);" \
      "the build is as it was and serves the settings it was made with"; }
    rm -rf "$trial" "$log"
    log="$build/configure.log"
  fi
  rm -f "$configured"
  run_cmake "$build" || { cat "$log" >&2; die 1 "CMake could not configure (above, and $log)"; }
  printf '%s\n' "$key" >"$configured"
}

# At most 2 compilers for every 3 GB of memory that is free now: libtorch's headers take up to 1.4 GB each.
compile_jobs() {
  local processors available_kb limit
  processors="$(nproc)"
  available_kb="$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)"
  limit="$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)"
  if [[ $limit =~ ^[0-9]+$ ]] && ((limit / 1024 < available_kb)); then available_kb=$((limit / 1024)); fi
  jobs=$((available_kb * 2 / (3 * 1024 * 1024)))
  ((jobs > processors)) && jobs=$processors
  ((jobs < 1)) && jobs=1
  jobs="${SLUICE_JOBS:-$jobs}"
}

# Says how far Ninja is, as `log` tells: on a terminal each second in place, elsewhere a line every 15 s. Runs beside
# Ninja, and ends with this script at the latest.
show_progress() {
  local begin=$SECONDS said=$SECONDS passed left in_place=no
  [[ -t 2 && ${TERM:-dumb} != dumb ]] && in_place=yes
  while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
    [[ $in_place == yes ]] || ((SECONDS - said >= progress_seconds)) || continue
    [[ $(grep -o '^\[[0-9]*/[0-9]*\]' "$log" | tail -n 1) =~ ([0-9]+)/([0-9]+) ]] || continue
    ((BASH_REMATCH[1] > 0)) || continue
    said=$SECONDS
    passed=$((said - begin))
    left=$((passed * (BASH_REMATCH[2] - BASH_REMATCH[1]) / BASH_REMATCH[1]))
    [[ $in_place == no ]] || printf '\r\033[K' >&2
    printf 'sluice: %d of %d steps done (%d %%) after %d:%02d, about %d:%02d left' "${BASH_REMATCH[@]:1:2}" \
      $((100 * BASH_REMATCH[1] / BASH_REMATCH[2])) $((passed / 60)) $((passed % 60)) $((left / 60)) $((left % 60)) >&2
    [[ $in_place == yes ]] || printf '\n' >&2
  done
}

# Ninja's output is kept for the case of a failure.
run_ninja() {
  local plan watcher status=0 log="$build/build.log"
  plan="$(ninja -C "$build" -n "$@" 2>/dev/null | tail -n 1 || true)"
  [[ $plan == *"no work to do"* ]] && return
  compile_jobs
  say "building $* with $jobs jobs; a first build takes minutes, a later one only what changed"
  local begin=$SECONDS
  : >"$log"
  show_progress 9>&- &
  watcher=$!
  NINJA_STATUS='[%f/%t] ' ninja -C "$build" -j "$jobs" "$@" >"$log" 2>&1 || status=$?
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  [[ ! -t 2 || ${TERM:-dumb} == dumb ]] || printf '\r\033[K' >&2
  ((status == 0)) || { grep -v '^\[[0-9]*/[0-9]*\] \(Building\|Linking\)' "$log" >&2; die 1 "the build failed (above, and $log)"; }
  say "built in $((SECONDS - begin)) s"
}
