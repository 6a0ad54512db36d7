#!/usr/bin/env bash
# The set-up: deps.sh [compiler] [debian] [go] [modules] [pip] [python]; modules is go
# without what tools/ alone wants. It looks at what is
# there, not at stamps, so that a second run costs well under a second and no
# network, and a cache emptied behind its back is noticed. Before anything is
# downloaded it says what, how big and under which licence.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# --- Debian packages -------------------------------------------------------

# missing NAME succeeds where what the package would bring is not there yet,
# wherever it may have come from.
missing() {
	case $1 in
	gcc) ! have gcc && ! have cc ;;
	g++) ! have g++ && ! have c++ ;;
	libtesseract-dev) ! header tesseract/baseapi.h ;;
	libleptonica-dev) ! header leptonica/allheaders.h ;;
	tesseract-ocr) ! have tesseract ;;
	ffmpeg) ! have ffmpeg ;;
	python3) ! have "$PYTHON" ;;
	python3-venv) ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ;;
	esac
}

header() {
	local dir
	for dir in /usr/include /usr/local/include; do
		[ -e "$dir/$1" ] && return 0
	done
	return 1
}

# about NAME: what it is for, download size with what it needs on a bare
# Debian 12, licence.
about() {
	case $1 in
	gcc) echo "C compiler, for cgo and the race detector; 35 MB; GPL-3.0 with the runtime exception" ;;
	g++) echo "C++ compiler, for the tesseract tag; 13 MB; GPL-3.0 with the runtime exception" ;;
	libtesseract-dev) echo "OCR engine to compile in; 21 MB; Apache-2.0" ;;
	libleptonica-dev) echo "image library of Tesseract; 2 MB; BSD-2-Clause" ;;
	ffmpeg) echo "decodes videos; 110 MB; LGPL-2.1 and GPL-2.0, later versions too" ;;
	tesseract-ocr) echo "OCR program and its English model; 30 MB; Apache-2.0" ;;
	python3) echo "runs the Python tests, and pip; 6 MB; PSF-2.0" ;;
	python3-venv) echo "makes .venv, and brings pip; 3 MB; PSF-2.0" ;;
	esac
}

debian() {
	local name wanted=()
	for name in "$@"; do
		if missing "$name"; then wanted+=("$name"); fi
	done
	[ ${#wanted[@]} -gt 0 ] || return 0
	say "Debian packages that are missing here (sizes to download, each with what it needs):"
	for name in "${wanted[@]}"; do
		printf '      %-17s %s\n' "$name" "$(about "$name")"
	done
	# C libraries' headers are only recommended by gcc.
	if [[ " ${wanted[*]} " == *" gcc "* ]]; then wanted+=(libc6-dev); fi
	apt_install "${wanted[@]}" || warn "going on without: what needs them is left out or skipped with a reason"
}

# --- Go modules ------------------------------------------------------------

go_modules() {
	have "$GO" || die "no go on PATH: install Go $(wanted_go) or newer"
	local there
	there=$(cd / && GOTOOLCHAIN=local $GO env GOVERSION 2>/dev/null) || true
	there=${there#go}
	if [ "$(printf '%s\n%s\n' "$(wanted_go)" "$there" | sort -V | head -n 1)" != "$(wanted_go)" ]; then
		say "this is Go ${there:-unknown}, older than the $(wanted_go) of go.mod: go fetches that toolchain" \
			"(about 80 MB, BSD-3-Clause) into its own cache, unless GOTOOLCHAIN=local"
	fi
	download . "125 MB at most; MIT, BSD, ISC and Apache-2.0"
}

tools_modules() {
	download tools "30 MB at most beyond the others; MIT, BSD and Apache-2.0; for tests and measurements alone"
}

# download FOLDER SIZES fetches the modules of the go.mod there.
download() (
	cd "$1"
	# Answers from the module cache alone.
	if GOPROXY=off $GO mod download >/dev/null 2>&1; then exit 0; fi
	say "downloading the $(grep -c '^	.* v[0-9]' go.mod) Go modules of ${1#./}/go.mod into Go's module cache: $2"
	$GO mod download || die "the Go modules could not be downloaded: without a network they must be in Go's module cache already"
)

wanted_go() { awk '$1 == "go" { print $2; exit }' go.mod; }

# --- Python ----------------------------------------------------------------

python_env() {
	local pinned=python/requirements-test.txt done=.venv/requirements-test.txt
	if [ -x .venv/bin/python ] && cmp -s "$pinned" "$done" && .venv/bin/python -c pass 2>/dev/null; then
		return 0
	fi
	if missing python3 || missing python3-venv; then
		warn "no Python with the venv module: tests that need Python are skipped"
		return 0
	fi
	rm -rf .venv
	say "making .venv with $($PYTHON --version)"
	$PYTHON -m venv .venv || {
		rm -rf .venv
		warn "$PYTHON -m venv failed: tests that need Python are skipped"
		return 0
	}
	say "downloading with pip into .venv: $(sed -n 's/^# size: //p' "$pinned")"
	if ! .venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
		--only-binary :all: --requirement "$pinned"; then
		rm -rf .venv
		warn "pip failed: tests that need Python are skipped"
		return 0
	fi
	cp "$pinned" "$done"
}

packages=()
for part in "$@"; do
	case $part in
	compiler) packages+=(gcc) ;;
	debian) packages+=(gcc g++ libtesseract-dev libleptonica-dev tesseract-ocr ffmpeg) ;;
	pip) pip_python >/dev/null || packages+=(python3 python3-venv) ;;
	python) packages+=(python3 python3-venv) ;;
	go | modules) ;;
	*) die "deps.sh: unknown part $part: compiler, debian, go, modules, pip or python" ;;
	esac
done
debian "${packages[@]}"
for part in "$@"; do
	case $part in
	go)
		go_modules
		tools_modules
		;;
	modules) go_modules ;;
	python) python_env ;;
	esac
done
