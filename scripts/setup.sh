#!/usr/bin/env bash
# Makes .venv with every dependency at its pinned version, finds or installs Java, and fetches the Kafka jars that the
# demo and the tests run against. Quick when everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '\033[1m[setup]\033[0m %s\n' "$*" >&2; }
# Says what begins, runs it, and says how many seconds it took.
step() {
  local what=$1 began=$SECONDS code=0
  shift
  say "$what ..."
  "$@" || code=$?
  [ "$code" = 0 ] && say "$what: $((SECONDS - began)) s"
  return "$code"
}

PYTHON=${PYTHON:-python3}
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { say "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 …"; exit 1; }

install_java() { apt-get update -qq && DEBIAN_FRONTEND=noninteractive $1 >/dev/null; }
java_major() { java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -1; }
case "$(command -v java >/dev/null && java_major)" in
  17 | 21) ;;
  *)
    line="apt-get install -y --no-install-recommends openjdk-17-jre-headless"
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
      step "installing Java 17" install_java "$line"
    else
      say "Java 17 or 21 is needed on the PATH: sudo $line"
      exit 1
    fi
    ;;
esac

[ -x .venv/bin/python ] || step "making .venv" "$PYTHON" -m venv .venv || { say "the venv module is missing: apt-get install -y python3-venv"; exit 1; }
if ! .venv/bin/uv --version >/dev/null 2>&1; then
  step "installing the installer" .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
fi
step "installing Python packages" \
  .venv/bin/uv pip install --quiet --compile-bytecode --python .venv/bin/python -c constraints.txt -e '.[airflow,spark,test]'
step "fetching Kafka jars (demo and tests only)" .venv/bin/python -m tests.harness.jars >&2
step "building the S3 server (demo and tests only)" .venv/bin/python -m tests.harness.versitygw ||
  say "there is no S3 server, so the demo and its tests will fail: put Go 1.25 or newer on the PATH, or set GOPROXY, and try again"
step "compiling kernels" .venv/bin/python -m statecore.spark.warm
step "preparing a quick start of Spark" .venv/bin/python -m statecore.spark.jvm
step "preparing a quick start of Kafka (demo and tests only)" .venv/bin/python -m tests.harness.archives
touch .venv/.ready
say "ready after $SECONDS s"
