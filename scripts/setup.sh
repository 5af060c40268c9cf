#!/usr/bin/env bash
# Makes .venv with every dependency at its pinned version, finds or installs Java, and fetches the Kafka jars that the
# demo and the tests run against. Quick when everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '\033[1m[setup]\033[0m %s\n' "$*" >&2; }

PYTHON=${PYTHON:-python3}
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { say "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 …"; exit 1; }

java_major() { java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -1; }
case "$(command -v java >/dev/null && java_major)" in
  17 | 21) ;;
  *)
    line="apt-get install -y --no-install-recommends openjdk-17-jre-headless"
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
      say "installing Java 17"
      apt-get update -qq && DEBIAN_FRONTEND=noninteractive $line >/dev/null
    else
      say "Java 17 or 21 is needed on the PATH: sudo $line"
      exit 1
    fi
    ;;
esac

[ -x .venv/bin/python ] || "$PYTHON" -m venv .venv || { say "the venv module is missing: apt-get install -y python3-venv"; exit 1; }
if ! .venv/bin/uv --version >/dev/null 2>&1; then
  say "installing the installer"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
fi
say "installing the pinned packages"
.venv/bin/uv pip install --quiet --compile-bytecode --python .venv/bin/python -c constraints.txt -e '.[airflow,spark,test]'
say "fetching the Kafka jars (demo and tests only)"
.venv/bin/python -m tests.harness.jars >&2
say "building the S3 server (tests only)"
.venv/bin/python -m tests.harness.versitygw ||
  say "there is no S3 server, so its tests will fail: put Go 1.25 or newer on the PATH, or set GOPROXY, and try again"
say "compiling the kernels, preparing a quick start of Spark and Kafka"
.venv/bin/python -m statecore.spark.warm
.venv/bin/python -m statecore.spark.jvm
.venv/bin/python -m tests.harness.archives
touch .venv/.ready
say "ready"
