#!/usr/bin/env bash
# Removes what make created below the clone: the list of .gitignore. Debian
# packages and the caches of Go and pip stay, as do crashers that fuzzing found.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

made=(bin out dist .cache .venv .tools python/build web/node_modules)

# An image build that was killed may leave mounts behind; nothing is removed
# through one.
if [ -r /proc/self/mounts ] && grep -qF " $PWD/.cache/" /proc/self/mounts; then
	die "something is still mounted below $PWD/.cache: unmount it first (see /proc/self/mounts)"
fi
for path in "${made[@]}"; do
	if [ -L "$path" ]; then rm -f "$path"; fi # What it points to is not ours.
	[ -e "$path" ] || continue
	say "rm -rf $path"
	# Go's module caches are read-only directories.
	chmod -R u+w "$path" 2>/dev/null || true
	rm -rf --one-file-system "$path"
done
find . -type d -name '.?*' -prune -o -type d \( -name __pycache__ -o -name '*.egg-info' \) -print0 | xargs -0r rm -rf
find . -type d -name '.?*' -prune -o -type f \( -name '*.test' -o -name '*.prof' \) -print0 | xargs -0r rm -f
