#!/usr/bin/env bash
# What the image runs to install statecore: a wheel, at the pinned versions, with what its first job would wait for.
#   install.sh CHECKOUT [EXTRAS]
set -euo pipefail
umask 022 # compiled kernels are kept, and used, only where nobody else can write
source=$1 extras=${2:-airflow,spark,metrics}
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
cd "$wheels" # so that nothing is imported from the checkout
python -m pip wheel --quiet --no-cache-dir --no-deps --wheel-dir "$wheels" "$source"
wheel=$(echo "$wheels"/statecore-*.whl)
python -m pip install --quiet --no-cache-dir -c "$source/constraints.txt" -r "$source/docker/requirements.txt" "$wheel[$extras]"
python -m pip check
# The wheel holds every file of the package: one that is missing would be missed by a job, in the night.
python - "$source" <<'PYTHON'
import pathlib, sys, statecore
here, there = pathlib.Path(sys.argv[1], "statecore"), pathlib.Path(statecore.__file__).parent
assert there.resolve() != here.resolve(), "statecore was imported from the checkout"
files = {path.relative_to(here) for path in here.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
missing = sorted(str(path) for path in files if not (there / path).is_file())
sys.exit(f"the wheel lacks {', '.join(missing)}" if missing else 0)
PYTHON
python -m statecore.spark.warm
python -m statecore.spark.jvm
