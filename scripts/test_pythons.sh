#!/usr/bin/env bash
# Runs the unit tests on every Python named here that this machine has or can get, each in an environment of its own.
#   test_pythons.sh VERSION...
# A Python is taken from what uv finds, from Debian's packages, or from what uv can download, in this order. One that
# cannot be had is said and left out; none at all is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '\033[1m[pythons]\033[0m %s\n' "$*" >&2; }
uv=.venv/bin/uv

interpreter() { # of a version; nothing where there is none
  $uv python find --no-project --no-python-downloads "$1" 2>/dev/null && return
  ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python 2>/dev/null | sort -V | tail -1 | grep . && return
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] && apt-cache show "python$1-venv" >/dev/null 2>&1; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "python$1" "python$1-venv" >/dev/null &&
      command -v "python$1" && return
  fi
  $uv python install --quiet "$1" 2>/dev/null && $uv python find --no-project "$1" 2>/dev/null
}

tested=() absent=() failed=()
for version in "$@"; do
  if ! python=$(interpreter "$version"); then
    absent+=("$version")
    continue
  fi
  home=.build/pythons/$version
  say "$version: $python"
  [ -x "$home/bin/python" ] || $uv venv --quiet --python "$python" "$home"
  $uv pip install --quiet --compile-bytecode --python "$home/bin/python" -c constraints.txt -e '.[airflow,spark,test]'
  "$home/bin/python" -m statecore.spark.warm # else each process of the tests compiles the kernels for itself
  if "$home/bin/python" -m pytest -m "not integration and not long" -n 2 --dist loadfile; then
    tested+=("$version")
  else
    failed+=("$version")
  fi
done
say "passed: ${tested[*]:-none}; failed: ${failed[*]:-none}; not to be had here: ${absent[*]:-none}"
[ "${#failed[@]}" = 0 ] && [ "${#tested[@]}" != 0 ]
