#!/usr/bin/env bash
# Builds every stage of the Dockerfile without a Docker engine, then runs
# `doctor` and one `score` in the image: Debian's buildah with chroot isolation,
# from a base that mmdebstrap makes, with this machine's Go toolchain copied in
# (Debian's is too old). All of it lies below .cache/docker.
#
# How this machine reaches its registries (apt sources and proxies, GOPROXY and
# its kin, pip's index, the bundle of CA certificates) is handed to the build while it runs,
# and to the build stages only; the last check is that the image holds none of it.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

skip() {
	say "docker-check SKIPPED: $*"
	exit 0
}
is_root || skip "not root, and chroot isolation needs it"
have apt-config || skip "this is not Debian"
missing=()
for package in buildah mmdebstrap; do have "$package" || missing+=("$package"); done
if [ ${#missing[@]} -gt 0 ]; then
	say "Debian packages that are missing here: ${missing[*]} (about 20 MB with what they need; Apache-2.0 and MIT)"
	apt_install "${missing[@]}" || skip "without ${missing[*]}"
fi

work=$PWD/.cache/docker
base=$work/base.tar
mkdir -p "$work"
storage=$work/storage
bud() { buildah --root "$storage" --runroot "$work/run" --storage-driver vfs "$@"; }

# buildah run as root keeps a cache of its own here, wherever its root is.
[ -e /var/lib/containers ] && had_containers=1 || had_containers=0

exec 9>"$work/lock"
flock -n 9 || die "another docker-check is running in this clone"

# discard removes images, containers and settings; the base stays for the next
# run. Nothing is removed through a mount that a killed run may have left.
discard() {
	bud rm --all >/dev/null 2>&1 || true
	if grep -qF " $work/" /proc/self/mounts; then
		warn "something is still mounted below $work (see /proc/self/mounts): left as it is"
		return 1
	fi
	rm -rf --one-file-system "$storage" "$work/run" "$work"/settings.*
	[ "$had_containers" = 1 ] || rm -rf --one-file-system /var/lib/containers
}
discard # What a killed run left.
settings=$(mktemp -d "$work/settings.XXXXXX") # Mode 0700: may hold credentials of a proxy.
export TMPDIR=$settings
trap discard EXIT

# --- how this machine reaches its registries -----------------------------------

. scripts/debian.sh
shared=(
	--volume "$settings/sources.list:/etc/apt/sources.list:ro"
	--volume "$settings/apt.conf:/etc/apt/apt.conf.d/99host:ro"
)
arguments=()
bundle=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
if [ -r "$bundle" ]; then
	shared+=(--volume "$bundle:/run/host-ca.crt:ro")
	arguments+=(--build-arg SSL_CERT_FILE=/run/host-ca.crt --build-arg PIP_CERT=/run/host-ca.crt)
	echo 'Acquire::https::CaInfo "/run/host-ca.crt";' >>"$settings/apt.conf"
fi
for name in GOPROXY GOSUMDB GONOSUMDB GOPRIVATE GOFLAGS; do
	value=$($GO env "$name")
	[ -z "$value" ] || arguments+=(--build-arg "$name=$value")
done

for name in INDEX_URL EXTRA_INDEX_URL TRUSTED_HOST; do
	variable=PIP_$name setting=${name,,}
	value=${!variable:-$($PYTHON -m pip config get "global.${setting//_/-}" 2>/dev/null || true)}
	[ -z "$value" ] || arguments+=(--build-arg "$variable=$value")
done

# --- the two base images ----------------------------------------------------

debian_base "$base" ca-certificates

say "base image"
container=$(bud from --quiet scratch)
bud add --quiet "$container" "$base" / >/dev/null
bud config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --cmd bash "$container"
bud commit --quiet --rm --format docker "$container" localhost/rewardloop-debian >/dev/null

say "Go image: the base, make, gcc and the toolchain of $($GO env GOROOT)"
container=$(bud from --quiet --pull-never localhost/rewardloop-debian)
bud run --isolation chroot "${shared[@]}" "$container" -- sh -ec \
	'apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends make gcc libc6-dev' \
	</dev/null >"$work/go-image.log" 2>&1 || {
	tail -n 15 "$work/go-image.log" >&2
	die "the Go image could not be made"
}
bud add --quiet "$container" "$($GO env GOROOT)" /usr/local/go >/dev/null
bud config --env PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	--env GOTOOLCHAIN=local "$container"
bud commit --quiet --rm --format docker "$container" localhost/rewardloop-go >/dev/null

# --- the Dockerfile -----------------------------------------------------------

say "buildah bud: every stage of the Dockerfile (log in ${work#"$PWD"/}/build.log)"
bud bud --isolation chroot --format docker --pull-never \
	--build-arg GO_IMAGE=localhost/rewardloop-go --build-arg BASE_IMAGE=localhost/rewardloop-debian \
	--build-arg VERSION=1.2.3 --build-arg REVISION=0123abc --build-arg CREATED=2026-01-02T03:04:05Z --build-arg SOURCE=https://example.com/rewardloop \
	"${arguments[@]}" "${shared[@]}" --tag localhost/rewardloop . </dev/null >"$work/build.log" 2>&1 || {
	tail -n 40 "$work/build.log" >&2
	die "the image could not be built"
}

# --- what is in the image -------------------------------------------------------

container=$(bud from --quiet --pull-never localhost/rewardloop)
inside() { bud run --isolation chroot "$@" </dev/null; }

user=$(inside "$container" -- id -u)
[ "$user" = 10001 ] || die "the image runs as user $user, not 10001"

say "the labels, and what the program says of itself"
labels=$(bud inspect --type image localhost/rewardloop | grep '"org\.opencontainers\.image\.' | sort -u)
for label in title:rewardloop version:1.2.3 revision:0123abc licenses:Apache-2.0 created:2026-01-02T03:04:05Z source:https://example.com/rewardloop; do
	grep -qF "\"org.opencontainers.image.${label%%:*}\": \"${label#*:}\"" <<<"$labels" || die "the image has no label ${label%%:*} that says ${label#*:}: $labels"
done
inside "$container" -- rewardloop version | tee "$work/version"
grep -q '^rewardloop 1.2.3$' "$work/version" && grep -q '^commit  0123abc$' "$work/version" || die "the program does not say its release and its commit"

say "rewardloop doctor, in the image as user $user"
inside "$container" -- rewardloop doctor | tee "$work/doctor"
grep -Eq "^ok +onnx runtime +$ORT_VERSION at /opt/onnxruntime/lib/" "$work/doctor" ||
	die "doctor does not find ONNX Runtime $ORT_VERSION in the image"

say "rewardloop score, in the image"
samples=$settings/samples
install -d -m 755 "$samples"
# The directory above is 0700: the container's user reaches it as a mount of its own.
install -d -m 755 -o 10001 -g 10001 "$samples/out"
cp testdata/golden/ocr/g00_1.jpg "$samples/picture.jpg"
cat >"$samples/config.yaml" <<'YAML'
reward:
  reward_functions:
    ocr:
      path: builtin://ocr
      required: true
YAML
cat >"$samples/samples.jsonl" <<'JSON'
{"id": "picture", "data_source": "ocr", "prompt": "A vintage poster with the words \"Opal Bookshop\"", "image": "picture.jpg", "ground_truth": "Opal Bookshop"}
JSON
inside --volume "$samples:/samples" "$container" -- rewardloop score -c /samples/config.yaml \
	-i /samples/samples.jsonl -o /samples/out/scores.jsonl --media-root /samples
cat "$samples/out/scores.jsonl"
grep -q '"outcome": *"scored"' "$samples/out/scores.jsonl" || die "the sample was not scored"

say "the same with reader: ppocr, whose models the image brings"
sed -i 's|^      path: builtin://ocr|&\n      reader: ppocr|' "$samples/config.yaml"
inside --volume "$samples:/samples" "$container" -- \
	rewardloop score -c /samples/config.yaml -i /samples/samples.jsonl -o /samples/out/ppocr.jsonl --media-root /samples
cat "$samples/out/ppocr.jsonl"
grep -q '"outcome": *"scored"' "$samples/out/ppocr.jsonl" || die "the sample was not scored with PP-OCR"

say "the configuration of deploy/ as it is, on a picture and on a video (mp4), with what the image brings"
cp deploy/config.yaml "$samples/deploy.yaml"
inside --volume "$samples:/samples" "$container" -- \
	ffmpeg -v error -f lavfi -i testsrc2=s=320x240:r=8 -frames:v 9 -pix_fmt yuv420p /samples/out/clip.mp4
printf '{"id": "clip", "prompt": "A clip that says \\"Opal\\"", "video": "out/clip.mp4", "ground_truth": "Opal"}\n' >>"$samples/samples.jsonl"
inside --volume "$samples:/samples" "$container" -- \
	rewardloop score -c /samples/deploy.yaml -i /samples/samples.jsonl -o /samples/out/deploy.jsonl --media-root /samples
cat "$samples/out/deploy.jsonl"
[ "$(grep -c '"outcome": *"scored"' "$samples/out/deploy.jsonl")" = 2 ] || die "the picture and the clip were not both scored"

say "serve in the image, asked from outside over HTTP and over the websocket"
scripts/deps.sh python
within 300 env PYTHONPATH="$PWD/python" .venv/bin/python scripts/release-try.py /samples/deploy.yaml testdata/golden/ocr/g00_1.jpg \
	buildah --root "$storage" --runroot "$work/run" --storage-driver vfs run --isolation chroot --volume "$samples:/samples" "$container" -- rewardloop

say "the image holds no compiler and no settings of this machine"
root=$(bud mount "$container")
for path in usr/bin/gcc usr/local/go usr/bin/python3; do
	[ ! -e "$root/$path" ] || die "the image holds /$path"
done
for path in etc/apt/sources.list etc/apt/apt.conf.d/99host run/host-ca.crt; do
	[ ! -s "$root/$path" ] || die "the image holds /$path"
done
if bud inspect --type image localhost/rewardloop | grep -E '"(GOPROXY|GOSUMDB|GOPRIVATE|GOFLAGS|SSL_CERT_FILE|PIP_[A-Z_]*|[a-zA-Z]*_proxy|[A-Z]*_PROXY)='; then
	die "the image's configuration holds settings of this machine"
fi
say "the image holds the licences"
for path in LICENSE THIRD_PARTY.md go/LICENSE onnxruntime/LICENSE onnxruntime/ThirdPartyNotices.txt; do
	[ -s "$root/licenses/$path" ] || die "the image holds no /licenses/$path"
done
modules=$(grep -c '^| \[.*| v[0-9]' "$root/licenses/THIRD_PARTY.md")
texts=$(find "$root/licenses" -path '*@v*' -type f | wc -l)
[ "$texts" -ge "$modules" ] || die "/licenses holds $texts texts for $modules Go modules"
bud umount "$container" >/dev/null

# CUDA's image is not at hand without a registry of images: on Debian's the stage is the same but
# for CUDA's own libraries, without which the provider is found and not loaded.
say "the target cuda, on the base image without CUDA"
bud bud --isolation chroot --format docker --pull-never --target cuda \
	--build-arg GO_IMAGE=localhost/rewardloop-go --build-arg BASE_IMAGE=localhost/rewardloop-debian \
	--build-arg CUDA_IMAGE=localhost/rewardloop-debian \
	"${arguments[@]}" "${shared[@]}" --tag localhost/rewardloop-cuda . </dev/null >"$work/build-cuda.log" 2>&1 || {
	tail -n 40 "$work/build-cuda.log" >&2
	die "the target cuda could not be built"
}
container=$(bud from --quiet --pull-never localhost/rewardloop-cuda)
inside "$container" -- rewardloop doctor >"$work/doctor-cuda" || true # the provider's libraries are missing
cat "$work/doctor-cuda"
grep -Eq "cuda provider +built for CUDA [0-9]+, at /opt/onnxruntime/lib/libonnxruntime_providers_cuda.so" "$work/doctor-cuda" ||
	die "doctor does not find the CUDA provider in the image of the target cuda"

say "docker-check passed: $(bud images --format '{{.Size}}' localhost/rewardloop)"
