#!/usr/bin/env bash
# The status page: web/dist is what web/src builds to, the unit tests, and a walk through every
# view in Chromium against a server of generated data (web/test/mock.mjs). REWARDLOOP_WEB_URL
# names a server that runs, for the same walk, REWARDLOOP_WEB_TOKEN its token: then what depends
# on the generated data is left out. CHROMIUM names another Chromium.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

npm_packages
say "types"
(cd web && within 120 npm run --silent check) || die "web/src does not pass the type checker, see above"

say "web/dist against web/src"
fresh=.cache/web/dist
(cd web && within 60 node build.mjs "../$fresh") || die "web/src cannot be built, see above"
diff -rq "$fresh" web/dist >&2 || die "web/dist is not what web/src builds to: run make web, and commit both"
say "$(gzipped_size web/dist) bytes, compressed"

say "unit tests"
(cd web && within 120 node --test test/unit/*.test.mjs >../.cache/test-web-unit.log 2>&1) || {
	tail -n 60 .cache/test-web-unit.log >&2
	die "a unit test failed: all of it in .cache/test-web-unit.log"
}
grep -E '^. (tests|pass|fail|skipped) ' .cache/test-web-unit.log

chromium_here
say "a walk through the page in Chromium, log in .cache/test-web.log"
within 600 node web/test/walk.mjs 2>&1 | tee .cache/test-web.log || die "the walk failed, or took longer than 10 minutes: see .cache/test-web.log"
say "the same against a real server: 100,000 samples, failures, videos, and a judge that hangs"
make -s build
within 900 node web/test/real.mjs 2>&1 | tee -a .cache/test-web.log || die "the walk through a real server failed, or took longer than 15 minutes: see .cache/test-web.log"
