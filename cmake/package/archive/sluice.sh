#!/bin/sh
# Starts the program of this archive, from any folder and through any symbolic link. The ranks inherit the environment.
set -eu
home="$(dirname "$(readlink -f "$0")")"
case "$home" in
  *:*) echo "sluice: $home has a colon in its path, which the dynamic linker's search path cannot hold; move it" >&2; exit 2 ;;
esac
export LD_LIBRARY_PATH="$home/lib/torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export SLUICE_TORCH_ROOT="$home/lib/torch"  # the quickstart's text lies there
export SLUICE_SHIPPED="$home/lib/sluice"
@CUDA_REFUSED@
exec "$home/lib/sluice/bin/sluice" "$@"
