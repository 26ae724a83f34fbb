#!/bin/sh
# Looks at this machine's first NVIDIA GPU, or at that of `--device N`, for up to ten minutes, and writes what it
# sees into report.txt. Needs nothing but the driver; uses compute-sanitizer where it is there.
cd "$(dirname "$0")" || exit 2
{
    date -u
    uname -srm
    nvidia-smi || echo "nvidia-smi does not run"
    ./gpu-check "$@"
    echo $? >status
} 2>&1 | tee report.txt
code=$(cat status)
rm -f status
exit "$code"
