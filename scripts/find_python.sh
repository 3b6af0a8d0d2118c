#!/bin/sh
# Prints the path of the interpreter of a version of Python (`3.9`): on the PATH, or one that pyenv or uv has installed.
for found in "$(command -v "python$1")" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python3 \
    "${XDG_DATA_HOME:-$HOME/.local/share}"/uv/python/cpython-"$1".*/bin/python3; do
    # A name on the PATH may be pyenv's, and lead nowhere.
    if "$found" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
        printf '%s\n' "$found"
        exit 0
    fi
done
exit 1
