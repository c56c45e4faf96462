#!/bin/sh
# install-requirements.sh FILE: the packages of FILE into /opt/warmgraph, with their bytecode.
set -eu
. "$(dirname "$0")/uv.sh"

if [ ! -x "$environment/bin/python" ]; then
    "$uv" venv --quiet --python "$(command -v python3)" "$environment"
    # Some base images ship the standard library without its bytecode, and then every start of a
    # process would compile it anew. Files that have it are left alone.
    library=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
    python3 -m compileall -qq --invalidation-mode unchecked-hash \
        -x '(site-packages|lib2to3|test)/' "$library" || true
fi
"$uv" pip install --quiet --python "$environment/bin/python" --no-deps --require-hashes \
    --compile-bytecode --requirement "$1"
