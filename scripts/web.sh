#!/usr/bin/env bash
# web.sh build|shots [FOLDER]: builds the status page from web/src into web/dist, or takes
# pictures of every view of it into FOLDER, by default out/web. npm's packages lie in .cache/web.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

npm_packages
case ${1:-} in
build)
	(cd web && npm run --silent check && node build.mjs)
	say "web/dist: $(gzipped_size web/dist) bytes, compressed"
	;;
shots)
	chromium_here
	within 300 node web/test/shots.mjs "$(realpath -m "${2:-out/web}")"
	;;
*) die "web.sh build, or web.sh shots [FOLDER]" ;;
esac
