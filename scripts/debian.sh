# shellcheck shell=bash
# Sourced after lib.sh by what makes an empty Debian of this machine's release. It writes into the folder $settings how apt
# reaches its sources here: sources.list, and apt.conf with the options of this machine. skip, of the script that sources this, ends
# it where that is not possible.

# shellcheck disable=SC1091 # Debian's own file.
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
bundle=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
apt_sources() {
	# shellcheck disable=SC2016 # apt's own variables.
	apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
		awk -v suite="$suite" '$1 == "Debian" && ($2 == suite || $2 == suite "-updates" || $2 == suite "-security") {
			print "deb", $3, $4, $5 }' | sort -u
}
apt_sources >"$settings/sources.list"
if [ ! -s "$settings/sources.list" ]; then
	say "apt-get update"
	apt-get update -q </dev/null >"$settings/apt.log" 2>&1 || true
	apt_sources >"$settings/sources.list"
fi
[ -s "$settings/sources.list" ] || skip "apt knows no Debian sources for ${suite:-this release}"
apt-config dump | grep -E '^Acquire::(http|https|Check-|Retries|ForceIPv)' >"$settings/apt.conf" || true

# debian_base TAR PACKAGES makes a root of the smallest variant with some packages, unless the file is there.
debian_base() {
	[ ! -s "$1" ] || return 0
	say "mmdebstrap $suite into ${1#"$PWD"/}: about 60 MB to download; Debian's free licences"
	# mmdebstrap leaves sources and options in what it makes; the hooks take them out again. It runs outside
	# the root, where the bundle of certificates is elsewhere than in a build.
	sed "s|/run/host-ca.crt|$bundle|" "$settings/apt.conf" >"$settings/outside.conf"
	# shellcheck disable=SC2016 # Expanded by the hook's own shell.
	mmdebstrap --quiet --variant=minbase --include="$2" --aptopt="$settings/outside.conf" \
		--customize-hook='rm -f "$1"/etc/apt/apt.conf.d/99mmdebstrap' \
		--customize-hook=': > "$1"/etc/apt/sources.list' \
		"$suite" "$1.part" - --format=tar <"$settings/sources.list" 2>"$settings/mmdebstrap.log" || {
		tail -n 15 "$settings/mmdebstrap.log" >&2
		die "mmdebstrap failed"
	}
	mv "$1.part" "$1"
}
