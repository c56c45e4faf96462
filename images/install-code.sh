#!/bin/sh
# install-code.sh SOURCE DESTINATION SCRIPT…: the packages found in SOURCE, below DESTINATION, laid
# out as in /opt/warmgraph, with their bytecode and with these console scripts only.
set -eu
. "$(dirname "$0")/uv.sh"

source=$1
destination=$2
shift 2

# pyproject.toml names it as the description of a package that nobody downloads; with the real one
# every edit of it would be another image.
touch "$source/README.md"
"$uv" pip install --quiet --python "$environment/bin/python" --prefix "$destination" --no-deps \
    --compile-bytecode "$source"
# pyproject.toml declares the scripts of every process; those of a process that is not in this
# image would only fail.
mkdir "$scratch/scripts"
for script in "$@"; do
    mv "$destination/bin/$script" "$scratch/scripts/"
done
rm -rf "$destination/bin"
mv "$scratch/scripts" "$destination/bin"
