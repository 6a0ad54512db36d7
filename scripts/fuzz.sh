#!/usr/bin/env bash
# Runs every fuzz target that `go test` finds in the two modules for FUZZTIME each, one after
# the other. A crasher is written to testdata/fuzz of its package, to be kept.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tags=$(scripts/tags.sh)
# go test -list prints the names, then "ok <package> <time>".
targets=$(for module in . tools; do
	$GO -C "$module" test -vet=off -tags "$tags" -list '^Fuzz' ./... |
		awk -v module="$module" '/^Fuzz/ { names[++n] = $1 } /^ok/ { for (i = 1; i <= n; i++) print module, $2, names[i]; n = 0 }'
done)
[ -n "$targets" ] || die "no fuzz target found"

failed=()
while read -r module package target; do
	say "$target in $package, ${FUZZTIME:-15s}"
	$GO -C "$module" test -vet=off -tags "$tags" -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-15s}" "$package" </dev/null ||
		failed+=("$package $target")
done <<<"$targets"

say "$(wc -l <<<"$targets") fuzz targets, ${#failed[@]} failed"
if [ ${#failed[@]} -gt 0 ]; then
	printf '      %s\n' "${failed[@]}" >&2
	exit 1
fi
