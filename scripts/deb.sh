#!/usr/bin/env bash
# deb.sh PROGRAM VERSION ARCH LICENCES FOLDER makes a Debian package: the program, a service of a user of its own, and a first
# configuration, which is the administrator's from then on. The service is not started: it wants a token first.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

program=$1 version=$2 arch=$3 licences=$4 out=$5
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

install -Dm755 "$program" "$root/usr/bin/rewardloop"
install -Dm644 deploy/config.yaml "$root/etc/rewardloop/config.yaml"
for unit in deploy/systemd/*.service; do
	install -d "$root/usr/lib/systemd/system"
	sed 's|/usr/local/bin/rewardloop|/usr/bin/rewardloop|g; s|/usr/local/share/rewardloop|/usr/share/rewardloop|g' "$unit" >"$root/usr/lib/systemd/system/${unit##*/}"
done
install -Dm644 deploy/debian/rewardloop.service "$root/usr/lib/systemd/system/rewardloop.service"
install -Dm644 deploy/debian/rewardloop.sysusers "$root/usr/lib/sysusers.d/rewardloop.conf"
install -Dm644 LICENSE "$root/usr/share/doc/rewardloop/copyright"
gzip -9n <"$licences" >"$root/usr/share/doc/rewardloop/THIRD_PARTY.txt.gz"
mkdir "$root/DEBIAN"
install -m755 deploy/debian/postinst deploy/debian/prerm "$root/DEBIAN/"
echo /etc/rewardloop/config.yaml >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/control" <<EOF
Package: rewardloop
Version: ${version/.dev/"~dev"}
Architecture: $arch
Maintainer: The rewardloop authors <rewardloop@localhost>
Installed-Size: $(du -sk "$root" | cut -f1)
Depends: libc6 (>= 2.17)
Recommends: python3 (>= 3.10), python3-venv, tesseract-ocr
Section: science
Priority: optional
Description: reward server for RL training of image, video and multimodal models
 Each finished sample of a training step is scored by a free worker while the
 others are still being generated, and its reward comes back as rm_scores.
EOF
find "$root" -exec touch -h -d "@${SOURCE_DATE_EPOCH:-1577836800}" {} +
dpkg-deb --root-owner-group -Zxz -b "$root" "$out/rewardloop_${version}_$arch.deb" >/dev/null
