#!/usr/bin/env bash
# Builds what a release has into dist/: wheels with the program for Linux on x86-64 and ARM and one without, tarballs, Debian
# packages, a list of what is in the program (CycloneDX), and the SHA-256 of each. The program is linked by the C compiler of
# ziglang for the C library 2.17, and runs the tesseract program where it reads with Tesseract. ARCHES=amd64 builds for one.
# A program that asks for a newer C library, and a wheel of more than 20 MiB, end it (scripts/wheel.py).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

arches=${ARCHES:-amd64 arm64}
venv=.cache/release
dist=${DIST:-dist}
work=$venv-work
pinned_venv python/requirements-release.txt "$venv" "there is no release: its packages are in python/requirements-release.txt"
python=$PWD/$venv/bin/python

# At the tag v1.2.3 it is release 1.2.3, anywhere else 1.2.3.dev<commits>+g<commit>, which pip orders before it.
base=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' python/rewardloop/__init__.py)
described=$(git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || true)
commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
if [ "$described" = "v$base" ]; then version=$base; else version=$base.dev$(git rev-list --count HEAD 2>/dev/null || echo 0)+g${commit:0:8}; fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 1577836800)
export SOURCE_DATE_EPOCH

rm -rf "$dist" "$work"
mkdir -p "$dist" "$work"
say "rewardloop $version ($commit) for $arches, into $dist"

say "the licences of what is linked"
scripts/tool.sh licences -licenses "$work/licences"
"$python" scripts/wheel.py licences "$work/licences" >"$work/THIRD_PARTY.txt"
scripts/tool.sh licences -sbom "$dist/rewardloop-$version.cdx.json" -version "$version"

say "the wheel without the program, for other machines"
cp -rL python "$work/python" # the links into rewards/python become files
rm -rf "$work/python/tests" "$work/python/bench" "$work/python/clients"
cp LICENSE "$work/python/"
sed -i "s/^__version__ = .*/__version__ = \"$version\"/" "$work/python/rewardloop/__init__.py"
"$python" -m pip wheel --quiet --no-deps --no-build-isolation --disable-pip-version-check -w "$dist" "$work/python"
pure=$(echo "$dist"/rewardloop-*-py3-none-any.whl)

# target ARCH prints zig's name of the target, package ARCH that of the platform in a wheel.
target() { case $1 in amd64) echo x86_64-linux-gnu.2.17 ;; arm64) echo aarch64-linux-gnu.2.17 ;; *) die "no target for $1" ;; esac; }
platform() { case $1 in amd64) echo x86_64 ;; arm64) echo aarch64 ;; esac; }

# nomsgpack as everywhere; without the HTTP/2 of net/http, which only downloads of models would use where HTTP/1.1 does as well:
# 200 KB of a wheel.
tags=nomsgpack,nethttpomithttp2

for arch in $arches; do
	program=$work/$arch/rewardloop
	mkdir -p "$work/$arch"
	say "the program for linux/$arch"
	CGO_ENABLED=1 GOOS=linux GOARCH=$arch CC="$python -m ziglang cc -target $(target "$arch")" \
		$GO build -trimpath -tags "$tags" -ldflags "-s -w -X main.version=$version -X main.commit=$commit -extldflags=-Wl,-s" -o "$program" ./cmd/rewardloop
	"$python" scripts/wheel.py wheel "$pure" --out "$dist" --program "$program" --licences "$work/THIRD_PARTY.txt" \
		--platform "manylinux_2_17_$(platform "$arch").manylinux2014_$(platform "$arch")"

	name=rewardloop-$version-linux-$arch
	mkdir -p "$work/$name"
	cp "$program" LICENSE README.md "$work/THIRD_PARTY.txt" "$work/$name/"
	cp -r deploy/systemd "$work/$name/systemd"
	cp deploy/config.yaml "$work/$name/"
	tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip -9n >"$dist/$name.tar.gz"

	if have dpkg-deb; then
		scripts/deb.sh "$program" "$version" "$arch" "$work/THIRD_PARTY.txt" "$dist"
	else
		warn "dpkg-deb is not here: no Debian package was made"
	fi
done
scripts/image.sh "$version" "$commit" "$arches" "$dist"
(cd "$dist" && sha256sum -- * >SHA256SUMS)
rm -rf "$work"
ls -l "$dist"
