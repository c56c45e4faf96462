# Sourced by the two installing scripts: sets $uv, and what it and pip need in a build container.
# Their traces go when $scratch is removed, before the layer ends.

environment=/opt/warmgraph
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The host's certificates, where the build mounts them or the base image has them.
certificates=/etc/ssl/certs/ca-certificates.crt
if [ -s /run/build/ca-certificates.crt ]; then
    certificates=/run/build/ca-certificates.crt
fi
if [ -s "$certificates" ]; then
    export SSL_CERT_FILE="$certificates" PIP_CERT="$certificates"
fi
# The host's uv and its cache, mounted by `python -m images` (buildah, podman), so that nothing is
# downloaded twice on one machine. Elsewhere uv comes from pip.
if [ -x /run/build/uv ]; then
    uv=/run/build/uv
    export UV_CACHE_DIR=/run/build-cache
else
    python3 -m venv "$scratch/tools"
    "$scratch/tools/bin/pip" install --quiet --no-cache-dir uv
    uv=$scratch/tools/bin/uv
    export UV_CACHE_DIR="$scratch/cache"
fi
# A hard link would tie the image's files to the cache's; a layer stores a copy anyway.
export UV_LINK_MODE=copy
# The base image's Python, never one that uv downloads.
export UV_PYTHON_DOWNLOADS=never
# Bytecode that is not compared with its source's time, which may change on the way through a
# registry: a read-only file system could never store it again.
export PYC_INVALIDATION_MODE=UNCHECKED_HASH
