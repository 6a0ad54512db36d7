#!/usr/bin/env bash
# Installs what `make release` has built into an empty Debian with Python and no compiler, as root and without a network: the
# wheel, and the Debian package. In each the model pulls, serves and scores over the websocket and over HTTP, and the time is told.
# What pip would download lies in a folder of wheels, .cache/release-wheels. Of each wheel size, processor and C library are looked at, and
# the program for ARM runs emulated: qemu and an ARM C library, which are unpacked below .cache/release-check and not installed.
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

say "size, processor and C library of each wheel"
python3 scripts/wheel.py check "$dist"
(cd "$dist" && sha256sum --check --quiet SHA256SUMS)

. scripts/debian.sh

# emulated runs the program of the wheel for the other processor with qemu: what it says of itself, its scorers, and one sample scored.
emulated() {
	local wheel emulator=$work/emulator tools config=$settings/emulator.conf program=$settings/emulated
	wheel=$(compgen -G "$dist/rewardloop-*aarch64.whl" | head -n 1) || { say "the program for ARM was not tried: $dist has no wheel for it (ARCHES=\"amd64 arm64\" make release)"; return 0; }
	if [ "$arch" = arm64 ]; then
		say "the program for ARM is this machine's: it is tried below"
		return 0
	fi
	if [ ! -e "$emulator/complete" ]; then
		say "qemu and the C library of ARM, into ${emulator#"$PWD"/}: about 60 MB to download with apt's lists (GPL-2.0, LGPL-2.1)"
		rm -rf "$emulator"
		mkdir -p "$emulator/lists/partial" "$emulator/archives/partial" "$emulator/here" "$emulator/there"
		{
			cat "$settings/apt.conf"
			printf 'Dir::Etc::sourcelist "%s";\nDir::Etc::sourceparts "/dev/null";\nDir::State::lists "%s/lists";\nDir::Cache "%s";\nDir::Cache::archives "%s/archives";\nAPT::Architectures { "%s"; "arm64"; };\nAPT::Sandbox::User "root";\n' \
				"$settings/sources.list" "$emulator" "$settings" "$emulator" "$arch"
		} >"$config"
		(cd "$emulator/archives" && export APT_CONFIG=$config && apt-get update -q && apt-get download -q qemu-user-static libc6:arm64) </dev/null >"$settings/emulator.log" 2>&1 || {
			tail -n 5 "$settings/emulator.log" >&2
			warn "the program for ARM was not tried: apt does not bring qemu-user-static and libc6:arm64, see above"
			return 0
		}
		dpkg-deb -x "$emulator"/archives/qemu-user-static_*.deb "$emulator/here"
		dpkg-deb -x "$emulator"/archives/libc6_*_arm64.deb "$emulator/there"
		rm -rf "$emulator/lists" "$emulator/archives"
		touch "$emulator/complete"
	fi
	say "the program for ARM, emulated"
	python3 -c 'import sys, zipfile; w = zipfile.ZipFile(sys.argv[1]); open(sys.argv[2], "wb").write(w.read(next(n for n in w.namelist() if n.endswith("/scripts/rewardloop"))))' "$wheel" "$program"
	chmod 755 "$program"
	tools=(timeout 300 env -i "HOME=$settings" "PATH=$PATH" REWARDLOOP_STORE=off "$emulator/here/usr/bin/qemu-aarch64-static" -L "$emulator/there" "$program")
	"${tools[@]}" version | tee "$settings/version"
	grep -q ' linux/arm64$' "$settings/version" || die "the program of the wheel for ARM does not say linux/arm64"
	"${tools[@]}" scorers >"$settings/scorers"
	grep -q 'length' "$settings/scorers" || die "the program for ARM lists no scorer length"
	printf '{"id": "1", "prompt": "a", "response": "four"}\n' >"$settings/in.jsonl"
	printf 'reward:\n  custom_reward_function: {path: "builtin://length"}\n' >"$settings/length.yaml"
	"${tools[@]}" score -c "$settings/length.yaml" -i "$settings/in.jsonl" -o "$settings/out.jsonl"
	cat "$settings/out.jsonl"
	grep -q '"outcome": *"scored"' "$settings/out.jsonl" || die "the program for ARM did not score the sample"
}
emulated

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
