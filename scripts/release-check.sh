#!/usr/bin/env bash
# Installs what `make release` has built into an empty Debian with Python and no compiler, as root and without a network: the
# wheel, and the Debian package. In each the model pulls, serves and scores over the websocket and over HTTP, and the time is told.
# What pip would download lies in a folder of wheels, .cache/release-wheels.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

skip() {
	say "release-check SKIPPED: $*"
	exit 0
}
is_root || skip "not root, and an empty Debian is made and entered as root"
have apt-config || skip "this is not Debian"
have mmdebstrap || apt_install mmdebstrap || skip "without mmdebstrap"
case $(uname -m) in x86_64) arch=amd64 tags=(manylinux_2_28_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64) ;; aarch64) arch=arm64 tags=(manylinux_2_28_aarch64 manylinux_2_17_aarch64 manylinux2014_aarch64) ;; *) skip "no wheel is built for $(uname -m)" ;; esac
dist=${DIST:-dist}
compgen -G "$dist/rewardloop-*manylinux*.whl" >/dev/null || ARCHES=$arch DIST=$dist scripts/release.sh

work=$PWD/.cache/release-check
mkdir -p "$work"
exec 9>"$work/lock"
flock -n 9 || die "another release-check is running in this clone"
settings=$(mktemp -d "$work/settings.XXXXXX") # Mode 0700: may hold credentials of a proxy.
root=$work/root
discard() {
	if grep -qF " $work/" /proc/self/mounts; then
		warn "something is still mounted below $work (see /proc/self/mounts): left as it is"
		return 1
	fi
	rm -rf --one-file-system "$root" "$settings"
}
trap discard EXIT

. scripts/debian.sh
debian_base "$work/base.tar" python3,python3-venv

wheels=$PWD/.cache/release-wheels
if [ ! -e "$wheels/complete" ]; then
	say "the wheels that pip would download, into $wheels: 90 MB"
	platforms=()
	for tag in "${tags[@]}"; do platforms+=(--platform "$tag"); done
	rm -rf "$wheels"
	pip=$(pip_python) || die "no Python has pip"
	"$pip" -m pip download --quiet --disable-pip-version-check --dest "$wheels" --only-binary :all: --python-version 3.11 --implementation cp "${platforms[@]}" \
		numpy websockets "onnxruntime==$ORT_VERSION"
	"$pip" -m pip download --quiet --disable-pip-version-check --dest "$wheels" --no-deps rapidocr==3.8.4
	touch "$wheels/complete"
fi

# fresh unpacks the empty Debian. enter runs a command in it: with processes, mounts and a network of its own, which leads nowhere.
fresh() {
	rm -rf --one-file-system "$root"
	mkdir -p "$root"
	tar -C "$root" -xf "$work/base.tar" --exclude='./dev/*'
	mkdir -p "$root/wheels" "$root/try" "$root/proc" "$root/dev"
	cp "$wheels"/*.whl "$dist"/*"$(uname -m)"*.whl "$root/wheels/"
	cp testdata/golden/ocr/g00_1.jpg "$root/try/poster.jpg"
	cp scripts/release-try.py "$root/try/"
	printf 'reward:\n  custom_reward_function: {path: "builtin://ocr", reward_kwargs: {reader: ppocr}}\n' >"$root/try/cfg.yaml"
}
enter() {
	# shellcheck disable=SC2016 # expanded inside
	unshare --mount --pid --net --fork sh -ec 'mount --make-rprivate /; mount -t proc proc "$1/proc"; mount -t tmpfs tmpfs "$1/dev"
		for d in null zero random urandom; do touch "$1/dev/$d"; mount --bind "/dev/$d" "$1/dev/$d"; done
		mkdir "$1/dev/shm"; mount -t tmpfs tmpfs "$1/dev/shm"; ip link set lo up 2>/dev/null || true
		root=$1; shift; exec env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels chroot "$root" "$@"' sh "$root" "$@"
}

say "the wheel in an empty Debian with Python, no compiler, no network"
fresh
# shellcheck disable=SC2016 # expanded inside
enter sh -ec '
	for compiler in gcc cc go; do if command -v $compiler; then exit 1; fi; done
	start=$(date +%s)
	python3 -m venv /env
	/env/bin/pip install --quiet --disable-pip-version-check "rewardloop[onnx]"
	/env/bin/rewardloop version
	/env/bin/rewardloop models pull ppocr-v4-mobile
	/env/bin/python /try/release-try.py /try/cfg.yaml /try/poster.jpg
	echo "from pip install to both scores: $(($(date +%s) - start)) s"
'

say "the Debian package in another one"
fresh
cp "$dist"/rewardloop_*_"$arch".deb "$root/rewardloop.deb"
# shellcheck disable=SC2016 # expanded inside
enter sh -ec '
	start=$(date +%s)
	dpkg --force-depends -i /rewardloop.deb
	id rewardloop
	python3 -m venv /env
	/env/bin/pip install --quiet --disable-pip-version-check onnxruntime websockets numpy
	rewardloop version
	install -d -o rewardloop /var/lib/rewardloop /var/cache/rewardloop
	as="setpriv --reuid=rewardloop --regid=rewardloop --clear-groups env HOME=/var/lib/rewardloop XDG_CACHE_HOME=/var/cache/rewardloop REWARDLOOP_MODELS=/var/lib/rewardloop/models REWARDLOOP_STORE=/var/lib/rewardloop/store REWARDLOOP_PYTHON=/env/bin/python3"
	$as rewardloop models pull ppocr-v4-mobile
	$as /env/bin/python /try/release-try.py /etc/rewardloop/config.yaml /try/poster.jpg
	dpkg -r rewardloop
	test ! -e /usr/bin/rewardloop
	test -e /etc/rewardloop/config.yaml
	echo "from dpkg to both scores: $(($(date +%s) - start)) s"
'
say "release-check passed"
