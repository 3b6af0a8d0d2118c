#!/bin/sh
# Measures kernels and key switches on the first NVIDIA card of this machine, each compared with the processor first:
#   scripts/on_device.sh PROGRAM FOLDER
# PROGRAM is `hushed-bench` built with `--features cuda` (it needs no toolkit, and can be built elsewhere); the rows and
# the card's state go to FOLDER. It needs the driver and NVRTC of CUDA 12 or 13, and changes no setting of the card.
set -eu
program=$1
folder=$2
mkdir -p "$folder"

# Where toolkits and Python's packages keep NVRTC, if the loader does not know one.
if ! ldconfig -p 2>/dev/null | grep -q 'libnvrtc\.so'; then
    for found in /usr/local/cuda*/lib64 /usr/local/cuda*/targets/*/lib \
        $(python3 -c 'import site; print(*site.getsitepackages())' 2>/dev/null | tr ' ' '\n' | sed 's|$|/nvidia/*/lib|'); do
        if ls "$found"/libnvrtc.so* >/dev/null 2>&1; then
            LD_LIBRARY_PATH=$found${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
            export LD_LIBRARY_PATH
            break
        fi
    done
fi
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm,clocks.mem --format=csv >"$folder/card.csv" || true
"$program" gpu --json >"$folder/rows.jsonl"
nvidia-smi --query-gpu=clocks.sm,power.draw,temperature.gpu --format=csv,noheader >>"$folder/card.csv" || true
wc -l "$folder/rows.jsonl"
if grep '"stopped"' "$folder/rows.jsonl"; then exit 1; fi
