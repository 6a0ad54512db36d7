#!/usr/bin/env bash
# Brings Prometheus and promtool to .cache/prometheus, out of Debian's package, which apt
# downloads and dpkg unpacks there: without root, and without the service that installing it
# starts. They check what deploy/ has for them. Where both are on the PATH, or there already,
# that is all that is looked at.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

folder=.cache/prometheus
log=.cache/prometheus.log

if have prometheus && have promtool; then
	say "Prometheus is $(command -v prometheus)"
	exit 0
fi
if [ -x "$folder/prometheus" ] && [ -x "$folder/promtool" ]; then
	say "Prometheus is in $folder"
	exit 0
fi
have apt-get && have dpkg-deb || die "this is not Debian: put prometheus and promtool 2.42 or newer on the PATH"
[ "$INSTALL" != 0 ] || die "INSTALL=0, so nothing is downloaded: put prometheus and promtool 2.42 or newer on the PATH"
mkdir -p .cache
part=$(mktemp -d "$PWD/.cache/prometheus.XXXXXX")
trap 'rm -rf "$part"' EXIT
say "downloading Debian's package prometheus into $folder: 19 MB to download, 95 MB on disk; Apache-2.0; nothing is installed"
if ! (cd "$part" && within 300 apt-get download -q prometheus) </dev/null >"$log" 2>&1; then
	is_root && within 300 apt-get update -q </dev/null >>"$log" 2>&1 || true
	(cd "$part" && within 300 apt-get download -q prometheus) </dev/null >>"$log" 2>&1 ||
		die "apt-get download prometheus: $(tail -n 1 "$log") (all of it in $log)"
fi
dpkg-deb -x "$part"/prometheus_*.deb "$part/root" || die "what apt-get brought is no package: $(ls "$part")"
"$part/root/usr/bin/promtool" --version >>"$log" 2>&1 || die "promtool does not run: $(tail -n 1 "$log")"
rm -rf "$folder"
mv "$part/root/usr/bin" "$folder"
say "Prometheus is in $folder"
