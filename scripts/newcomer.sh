#!/usr/bin/env bash
# What `make newcomer` does: applies each patch of tools/newcomer to a copy of the last
# commit, brings what is generated up to date, tests the packages that the patch touches
# and the import graph, and takes the patch back. With names, those alone:
# scripts/newcomer.sh key metric.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ -z "$(git status --porcelain -- ':!tools/newcomer')" ] || warn "what is not committed is not in the copy"
root=$PWD
if [ -x .venv/bin/python ]; then export REWARDLOOP_PYTHON=$PWD/.venv/bin/python; fi # a test of metrics scores a picture with it
copy=$(mktemp -d)
trap 'git -C "$root" worktree remove --force "$copy/tree" >/dev/null 2>&1; rm -rf "$copy"' EXIT
git worktree add --quiet --detach "$copy/tree" HEAD
cp tools/newcomer/*.patch "$copy"
cd "$copy/tree"
tags=$(scripts/tags.sh)

# generated writes what is derived from the code: tables of documents and golden files.
generated() {
	$GO test -tags "$tags" ./config -run Golden -update
	$GO test -tags "$tags" ./wire -run 'TestTheTables|GoldenClaim' -update
	$GO -C tools test ./architecture -run Metric -update
}

# tried NAME tests what a patch touches. -short leaves out what starts processes.
tried() {
	git apply "$copy/$1.patch" || return
	generated >"$copy/log" 2>&1 || { cat "$copy/log"; return 1; }
	local packages
	mapfile -t packages < <(git apply --numstat "$copy/$1.patch" | cut -f 3 | grep '\.go$' | xargs -n 1 dirname | sort -u | sed 's|^|./|')
	$GO vet -tags "$tags" ./... || return
	$GO test -tags "$tags" -short -timeout=5m ./config ./server/... "${packages[@]}" || return
	$GO -C tools test -timeout=10m ./architecture
}

[ $# -gt 0 ] || mapfile -t names < <(basename -s .patch "$copy"/*.patch)
[ $# = 0 ] || names=("$@")
failed=()
for name in "${names[@]}"; do
	say "newcomer: $name ($(git apply --numstat "$copy/$name.patch" | wc -l) files)"
	tried "$name" || failed+=("$name")
	git reset --quiet --hard
	git clean -fdq
done
[ ${#failed[@]} = 0 ] || die "tools/newcomer: ${failed[*]} failed: the places that such a thing has are not those of CONTRIBUTING.md any more"
