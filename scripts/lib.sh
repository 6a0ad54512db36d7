# shellcheck shell=bash
# Sourced by the scripts beside it: strict mode, the repository root as working
# directory, and one voice.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

GO=${GO:-go}
PYTHON=${PYTHON:-python3}
INSTALL=${INSTALL:-1}
# Servers of tests and tools keep no results in the user's folder.
export REWARDLOOP_STORE=${REWARDLOOP_STORE:-off}

say() { printf '==> %s\n' "$*"; }
warn() { printf '==> NOTE: %s\n' "$*" >&2; }
die() {
	printf '==> ERROR: %s\n' "$*" >&2
	exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }
is_root() { [ "$(id -u)" -eq 0 ]; }

# free_gb FOLDER prints how many GB are free on the disk of a folder that may not be there yet.
free_gb() {
	local folder=$1
	while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
	df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1048576) }'
}

# need_disk ends with an error where a disk that the tests write to has less than MIN_FREE_GB free,
# and says how much is free on each. Go's build cache takes 8 GB in one run of make test, and the
# programs of the tests, one at a time on each CPU, up to 1 GB.
need_disk() {
	local folder free min=${MIN_FREE_GB:-15}
	for folder in "$($GO env GOCACHE)" "${TMPDIR:-/tmp}" "$PWD"; do
		free=$(free_gb "$folder")
		say "$free GB free for $folder"
		[ "$free" -ge "$min" ] || die "$free GB are free on the disk of $folder, and the tests need $min: remove what is not needed ($GO clean -cache empties Go's build cache), or set MIN_FREE_GB"
	done
}

# go_files prints every Go file of the project, NUL-terminated. Directories
# beginning with a dot hold caches and tools.
go_files() { find . -type d -name '.?*' -prune -o -type f -name '*.go' -print0; }

# apt_install PACKAGE... installs as root after printing the lines. It returns
# 1, having said why, where it must not or cannot.
apt_install() {
	local log=.cache/apt.log
	local options=(-y --no-install-recommends -o DPkg::Lock::Timeout=120)
	local line="apt-get install ${options[*]:0:2} $*"
	if ! have apt-get; then
		warn "this is not Debian: install what corresponds to: $*"
		return 1
	fi
	if ! is_root; then
		warn "not root, so nothing is installed. To have it all, run this as root and then make again:"
		printf '      apt-get update && %s\n' "$line" >&2
		return 1
	fi
	if [ "$INSTALL" = 0 ]; then
		warn "INSTALL=0, so nothing is installed. To have it all: $line"
		return 1
	fi
	mkdir -p .cache
	export DEBIAN_FRONTEND=noninteractive
	say "apt-get update"
	apt-get update -q </dev/null >"$log" 2>&1 ||
		warn "apt-get update failed (see $log); trying with the package lists there are"
	say "$line"
	if ! apt-get install -q "${options[@]}" "$@" </dev/null >>"$log" 2>&1; then
		tail -n 15 "$log" >&2
		warn "apt-get install failed (all of it in $log)"
		return 1
	fi
}

# pip_python prints a Python that has pip: PYTHON, that of .venv, or one of its
# own below .cache, which a Python with the venv module makes without a network.
pip_python() {
	local python
	for python in "$PYTHON" "$PWD/.venv/bin/python" "$PWD/.cache/pip/bin/python"; do
		if "$python" -m pip --version >/dev/null 2>&1; then
			printf '%s\n' "$python"
			return 0
		fi
	done
	mkdir -p .cache
	if "$PYTHON" -m venv .cache/pip >/dev/null 2>&1 && "$PWD/.cache/pip/bin/python" -m pip --version >/dev/null 2>&1; then
		printf '%s\n' "$PWD/.cache/pip/bin/python"
		return 0
	fi
	rm -rf .cache/pip
	return 1
}

# new_venv FOLDER HINT makes a Python environment anew, and VENV_PIP what installs into
# it. HINT ends the message of a failure.
new_venv() {
	rm -rf "$1"
	say "making $1 with $("$PYTHON" --version)"
	mkdir -p "$(dirname "$1")"
	"$PYTHON" -m venv "$1" || die "$PYTHON -m venv failed: on Debian it is in python3-venv; $2"
	# shellcheck disable=SC2034 # read by the scripts that source this
	VENV_PIP=("$1/bin/python" -m pip install --quiet --no-input --disable-pip-version-check)
}

# pinned_venv LIST FOLDER OTHERWISE makes a Python environment of a list that pins every package,
# unless it is there and the list has not changed. OTHERWISE says what to do without it.
pinned_venv() {
	local pinned=$1 venv=$2 otherwise=$3
	if [ -x "$venv/bin/python" ] && cmp -s "$pinned" "$venv/installed.txt" && "$venv/bin/python" -c pass 2>/dev/null; then
		return 0
	fi
	new_venv "$venv" "or $otherwise"
	say "downloading with pip into $venv: $(sed -n 's/^# size: //p' "$pinned")"
	if ! "${VENV_PIP[@]}" --no-deps --only-binary :all: --requirement "$pinned"; then
		rm -rf "$venv"
		die "pip failed, see above: without a network $otherwise"
	fi
	cp "$pinned" "$venv/installed.txt"
}

# verl_python makes python be a Python that has verl, torch and transformers: that of VERL_PYTHON, else one in .cache/verl.
# verl itself is installed without what it asks for: engines that need a card.
verl_python() {
	local verl=0.9.0 pinned=python/requirements-test-verl.txt venv=.cache/verl wanted
	python=${VERL_PYTHON:-}
	[ -z "$python" ] || return 0
	python=$PWD/$venv/bin/python
	wanted=$(cat "$pinned" && echo "verl==$verl")
	if [ -x "$python" ] && [ "$wanted" = "$(cat "$venv/installed.txt" 2>/dev/null)" ] && "$python" -c pass 2>/dev/null; then
		return 0
	fi
	new_venv "$venv" "or name a Python that has verl in VERL_PYTHON"
	say "downloading verl $verl (Apache-2.0) and what its tests need with pip into $venv:" \
		"about 5 GB, nearly all of it torch with CUDA (BSD-3-Clause, NVIDIA's licences); 8 GB on disk"
	if ! "${VENV_PIP[@]}" --requirement "$pinned" || ! "${VENV_PIP[@]}" --no-deps "verl==$verl"; then
		rm -rf "$venv"
		die "pip failed, see above: without a network name a Python that has verl in VERL_PYTHON"
	fi
	printf '%s\n' "$wanted" >"$venv/installed.txt"
}

# npm_packages brings what web/package-lock.json pins into .cache/web, unless it is there, and links
# it to web/node_modules.
npm_packages() {
	local home=.cache/web lock=web/package-lock.json
	if ! have node || ! have npm; then
		die "the status page is built with Node.js 20 or newer and npm: on Debian they are in nodejs and npm"
	fi
	mkdir -p "$home"
	if ! cmp -s "$lock" "$home/installed.json"; then
		say "npm ci into $home (65 MB on disk)"
		rm -rf "$home/node_modules" "$home/installed.json"
		cp web/package.json "$lock" web/.npmrc "$home/"
		(cd "$home" && within 300 npm ci --no-audit --no-fund --loglevel=error) || die "npm ci failed, see above: this needs a network once"
		cp "$lock" "$home/installed.json"
	fi
	# A folder of somebody who ran npm in web/ stays.
	if [ ! -e web/node_modules ] || [ -L web/node_modules ]; then ln -sfn "../$home/node_modules" web/node_modules; fi
}

# chromium_here makes a Chromium be there, and CHROMIUM its program.
chromium_here() {
	export CHROMIUM=${CHROMIUM:-/usr/bin/chromium}
	[ -x "$CHROMIUM" ] || apt_install chromium || die "there is no $CHROMIUM: name a Chromium in CHROMIUM"
}

# gzipped_size FOLDER prints what its files take on the wire.
gzipped_size() { find "$1" -type f -exec gzip -9c {} + | wc -c; }

# within SECONDS COMMAND... ends a command that takes longer, where there is
# timeout(1). Ctrl-C still reaches the command.
within() {
	local seconds=$1
	shift
	if have timeout; then
		timeout --foreground --kill-after=10 "$seconds" "$@"
	else
		"$@"
	fi
}

# What runs models finds them, and the library, where make puts them.
ORT_VERSION=1.29.0
ORT_DIR=.cache/ort/$ORT_VERSION
# shellcheck disable=SC2034 # read by the scripts that source this
ORT_GPU_DIR=.cache/gpu/ort/$ORT_VERSION
use_models() {
	export REWARDLOOP_MODELS=${REWARDLOOP_MODELS:-$PWD/.cache/models}
	if [ -z "${ONNXRUNTIME_SHARED_LIBRARY_PATH:-}" ] && [ -e "$ORT_DIR/libonnxruntime.so.$ORT_VERSION" ]; then
		export ONNXRUNTIME_SHARED_LIBRARY_PATH=$PWD/$ORT_DIR/libonnxruntime.so.$ORT_VERSION
	fi
}

# gpu_tests prints the packages with tests behind the tag gpu, one a line: the folder, and a
# pattern of their names.
gpu_tests() {
	local files folder
	mapfile -t files < <(find . -type d -name '.?*' -prune -o -type f -name '*_test.go' -exec grep -lE '^//go:build.*\<gpu\>' {} +)
	[ ${#files[@]} -gt 0 ] || die "no test stands behind the tag gpu"
	while read -r folder; do
		printf '%s ^(%s)$\n' "${folder#./}" "$(for file in "${files[@]}"; do
			[ "${file%/*}" != "$folder" ] || sed -n 's/^func \(Test[A-Za-z0-9_]*\)(t .*/\1/p' "$file"
		done | paste -sd '|' -)"
	done < <(dirname "${files[@]}" | sort -u)
}
