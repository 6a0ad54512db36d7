#!/usr/bin/env bash
# docs-check.sh: builds the program and holds the documents to it and to the tree:
# links, names, commands with their flags, configurations, blocks; the pages of docs/recipes
# are followed, command by command. Offline, unless
# ONLINE=1 has it follow links to other hosts, too.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

flags=()
[ "${ONLINE:-0}" = 0 ] || flags+=(-online)
scripts/build.sh
scripts/tool.sh docscheck -bin bin/rewardloop "${flags[@]}"
scripts/gotest.sh -C tools -vet=off -timeout=10m -run TestEveryRecipeOfATrainerIsFollowed -- ./documents
