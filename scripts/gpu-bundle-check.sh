#!/usr/bin/env bash
# Packs a bundle and runs it where there is nothing: in a root that holds the parts, bash, the
# coreutils that gpu-run.sh names and the C library, without a network. There it must say that
# there is no card and test the CPU; without a part, or with a damaged one, it must say which. As
# another user than root, or where namespaces are forbidden, the root is this machine's own, with
# an empty environment and an empty home.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export BUNDLE_DIR=${BUNDLE_DIR:-out/gpu-bundle-check}
if [ -z "${TARGET:-}" ]; then
	TARGET=cpu
	[ ! -e "$ORT_GPU_DIR/libonnxruntime_providers_cuda.so" ] || TARGET=pytorch
fi
export TARGET
scripts/gpu-bundle.sh

mkdir -p .cache/gpu
root=$(mktemp -d "$PWD/.cache/gpu/empty.XXXXXX")
trap 'rm -rf --one-file-system "$root"' EXIT
mkdir -p "$root"/{parts,bin,proc,dev,sys,tmp,results,home}
cp "$BUNDLE_DIR"/* "$root/parts/"
chmod a-x "$root"/parts/* # as they are after a way that keeps no modes

# The loader's own, and what ONNX Runtime asks of the C library.
put() {
	mkdir -p "$root$(dirname "$1")"
	cp -L "$1" "$root$1"
}
tools=(bash cat chmod cp date dirname env head ls mkdir mktemp rm tee timeout tr)
for tool in "${tools[@]}"; do cp -L "$(command -v "$tool")" "$root/bin/"; done
while read -r library; do put "$library"; done < <(
	for tool in "${tools[@]}"; do ldd "$root/bin/$tool"; done | grep -o '/[^ ]*' | sort -u
	ldconfig -p | awk '/x86-64/ && $1 ~ /^lib(c|m|dl|rt|pthread)\.so\.[0-9]$/ { print $NF }'
)

# shellcheck disable=SC2016 # expanded by the shell in the namespace
inside='
mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount --bind /sys "$1/sys"
"$2" -c "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack(\"16sh22x\", b\"lo\", 0x41))" # lo up
exec chroot "$1" /bin/env -i PATH=/bin HOME=/home OUT=/results /bin/bash /parts/gpu-run.sh /parts'
empty=1
if ! is_root || ! unshare --net --mount --pid --fork true 2>/dev/null; then
	empty=0
	say "not root, or namespaces are forbidden here: the bundle runs in this machine's own root, with an empty environment and home"
fi
# play prints what gpu-run.sh says, and returns its status.
play() {
	if [ $empty = 1 ]; then
		within 600 unshare --net --mount --pid --fork bash -c "$inside" bash "$root" "$PYTHON"
	else
		within 600 env -i PATH="$PATH" HOME="$root/home" TMPDIR="$root/tmp" OUT="$root/results" bash "$root/parts/gpu-run.sh" "$root/parts"
	fi </dev/null
}

say "the bundle in an empty root, without a network"
play | tee .cache/gpu/check.log || die "it ends with ${PIPESTATUS[0]}: see above"
for line in "there is no card at hand" "everything required is present"; do
	grep -qF "$line" .cache/gpu/check.log || die "it does not say: $line"
done
[ -s "$root/results/gpu.log" ] || die "it left no log"
"$PYTHON" - "$root/results/gpu.json" <<'PYTHON'
import json, sys
with open(sys.argv[1]) as f:
    got = json.load(f)
assert got["device"] == "cpu" and got["tests"]["held"] and got["tests"]["passed"] > 50 and got["bench_exit"] == 0, got
assert got["report"]["suite"] == "gpu" and len(got["report"]["rows"]) > 10, got["report"]
print(f"==> {got['tests']['passed']} tests and {len(got['report']['rows'])} figures in {got['seconds']} s")
PYTHON
mkdir -p out
cp "$root/results/gpu.json" "$root/results/gpu.log" out/

part=$(find "$root/parts" -name '*.001')
[ -n "$part" ] || die "the bundle has one part alone"
printf x | dd of="$part" bs=1 seek=100000 conv=notrunc status=none
play >.cache/gpu/check.log 2>&1 && die "a damaged part is not noticed"
grep -q "damaged: part ${part##*/}" .cache/gpu/check.log || die "a damaged part is not named: $(cat .cache/gpu/check.log)"
rm "$part"
play >.cache/gpu/check.log 2>&1 && die "a missing part is not noticed"
grep -q "a part is missing: ${part##*/}" .cache/gpu/check.log || die "a missing part is not named: $(cat .cache/gpu/check.log)"
say "gpu-bundle-check passed: a damaged part and a missing one are refused by name"
