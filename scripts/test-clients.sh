#!/usr/bin/env bash
# Unmodified clients of other trainers against bin/rewardloop (python/clients). They
# get an environment of their own below .cache. VERL_PYTHON names a Python that has
# verl, and thereby torch, for those that need it; without it that of make test-verl
# is taken, if there is one. What is on no package index is named by
# REWARDLOOP_VERL_OMNI, a checkout of verl-omni, and REWARDLOOP_CHECKOUTS, a folder
# that holds checkouts: flow_grpo, deepgen_rl, Flow-Factory, slime.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

pinned=python/requirements-test-clients.txt
home=.cache/clients
venv=$home/venv
trainers=$home/trainers
# folder, package and version of the trainers whose clients are on PyPI.
packages=("openrlhf openrlhf 0.11.2" "openrlhf-0.8 openrlhf 0.8.11" "unirl unirl 0.2.0")
# What verl-omni's judges import beside what verl brings, from the same list.
judges='^(openai|httpx2|httpcore2|truststore|jiter|sniffio|rapidfuzz)=='
# The clients that need torch, ray or verl.
torch=(
	clients.test_verl_omni_http.HTTPOfVerlOmni clients.test_verl_omni_http.LatentOfVerlOmni clients.test_verl_omni_judges
	clients.test_flow_grpo.OfFlowGRPO clients.test_unirl.OfUniRL clients.test_flow_factory.OfFlowFactory
	clients.test_text.OpenRLHFOf08 clients.test_text.SlimeItself
)

wanted() { cat "$pinned" && printf '%s\n' "${packages[@]}"; }

# fetch PYTHON FOLDER ARGUMENT... installs into a folder with the pip of the venv.
fetch() {
	local for=$1 folder=$2
	shift 2
	rm -rf "$folder"
	"$venv/bin/python" -m pip --python "$for" install --quiet --no-input --disable-pip-version-check --no-deps \
		--only-binary :all: --target "$folder" "$@"
}

install() {
	local stamp=$home/installed.txt entry folder name version
	if [ -x "$venv/bin/python" ] && wanted | cmp -s - "$stamp" && "$venv/bin/python" -c pass 2>/dev/null; then
		return 0
	fi
	rm -rf "$home"
	new_venv "$venv" "then run this again"
	say "downloading with pip into $home: $(sed -n 's/^# size: //p' "$pinned");" \
		"and without what they need openrlhf and unirl (Apache-2.0, 2 MB)"
	"${VENV_PIP[@]}" --no-deps --only-binary :all: --requirement "$pinned" ||
		die "pip failed, see above: this needs a network once"
	for entry in "${packages[@]}"; do
		read -r folder name version <<<"$entry"
		# Their wheels are named after one Python and one machine, and hold plain Python.
		fetch "$venv/bin/python" "$trainers/$folder" --ignore-requires-python --python-version 3.12 "$name==$version" 2>/dev/null ||
			fetch "$venv/bin/python" "$trainers/$folder" --python-version 3.11 --implementation cp --platform manylinux1_x86_64 "$name==$version" ||
			die "pip failed, see above: $name $version"
	done
	wanted >"$stamp"
}

# run PYTHON LOG MODULE... runs tests and fails if one did, or none was there.
run() {
	local python=$1 log=$2
	shift 2
	say "clients in $("$python" --version), log in $log"
	within 600 "$python" -m unittest -v "$@" >"$log" 2>&1 || {
		tail -n 60 "$log" >&2
		die "a client failed, or they took longer than 10 minutes: all of it in $log"
	}
	tail -n 3 "$log"
	if grep -q '^Ran 0 tests' "$log"; then die "no client was tried, see $log"; fi
}

install
export REWARDLOOP_BIN=${REWARDLOOP_BIN:-$PWD/bin/rewardloop} REWARDLOOP_TRAINERS=$PWD/$trainers
export PYTHONPATH=$PWD/python PYTHONDONTWRITEBYTECODE=1

modules=()
for file in python/clients/test_*.py; do
	file=${file##*/}
	modules+=("clients.${file%.py}")
done
logs=(.cache/test-clients.log)
run "$PWD/$venv/bin/python" "${logs[0]}" "${modules[@]}"

python=${VERL_PYTHON:-}
if [ -z "$python" ] && [ -x .cache/verl/bin/python ]; then python=$PWD/.cache/verl/bin/python; fi
done_elsewhere='^$'
if [ -n "$python" ]; then
	tag=$("$python" -c 'import sys; print(sys.implementation.cache_tag)')
	if ! grep -E "$judges" "$pinned" | cmp -s - "$home/judges-$tag/installed.txt"; then
		grep -E "$judges" "$pinned" >"$home/judges.txt"
		fetch "$python" "$home/judges-$tag" --requirement "$home/judges.txt" || die "pip failed, see above"
		mv "$home/judges.txt" "$home/judges-$tag/installed.txt"
	fi
	logs+=(.cache/test-clients-torch.log)
	PYTHONPATH=$PWD/$home/judges-$tag:$PYTHONPATH run "$python" "${logs[1]}" "${torch[@]}"
	done_elsewhere='SKIPPED: this Python has no'
fi

skipped=$(grep -h "SKIPPED" "${logs[0]}" | grep -v "$done_elsewhere" || true)
if [ ${#logs[@]} -gt 1 ]; then skipped+=$'\n'$(grep -h "SKIPPED" "${logs[1]}" || true); fi
skipped=$(sed '/^$/d' <<<"$skipped" | sort -u)
if [ -n "$skipped" ]; then
	warn "what was not tried:"
	printf '%s\n' "$skipped" >&2
fi
