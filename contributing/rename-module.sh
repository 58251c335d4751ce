#!/usr/bin/env bash
# Rename the module, so that `go get` finds it where it is hosted:
#
#     contributing/rename-module.sh github.com/you/perdure
#
# It rewrites the module line, the import paths in .go and .proto files, and the generated code, in the clone that it
# is part of. Names on the wire and on disk (package perdure.v1, PERDURE_ADDR, stored keys) stay. It needs Go.
set -euo pipefail

path=${1:-}
if [ $# -ne 1 ] || ! [[ $path =~ ^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~-]+)+$ ]]; then
  printf 'usage: %s PATH, a module path with a domain such as github.com/you/perdure\n' "$0" >&2
  exit 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
old=$(go list -m)
if [ "$old" = "$path" ]; then
  printf 'the module is %s already\n' "$path"
  exit 0
fi

# Only import paths of this repository change: the old path, then one of its folders.
folders=$(find . -mindepth 1 -maxdepth 1 -type d ! -name '.*' -exec basename {} \; | sort | paste -sd '|' -)
from=${old//./\\.}
find . -path ./.git -prune -o \( -name '*.go' -o -name '*.proto' \) -print0 |
  xargs -0 sed -i -E "s#(\"|^//go:generate go run )$from/($folders)([/\";.])#\1$path/\2\3#g"
# The tests of internal/lint name packages that do not exist, too.
sed -i -E "s#(\")$from/#\1$path/#g; s#^(const module = )\"$from\"#\1\"$path\"#" internal/lint/*.go
sed -i -E "s#(\^| )$from/(internal|\()#\1$path/\2#" .ci/run
go mod edit -module "$path"
go generate ./api
gofmt -l . | xargs -r gofmt -w
go build ./...
printf '%s is %s now\n' "$old" "$path"
