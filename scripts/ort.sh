#!/usr/bin/env bash
# Brings the library of ONNX Runtime to .cache/ort: out of the Python wheel, which
# pip downloads, or else out of the npm package. Both clients ask the index they
# are configured for; nothing is installed and nothing of what comes is run. The
# library is taken only with the right sum. Where it is already, that is all that
# is looked at. ORT_TIMEOUT bounds each download, in seconds. ORT_FLAVOUR=gpu brings the
# one with the CUDA provider (x86-64, 202 MB to download) to .cache/gpu/ort instead; CUDA's
# own libraries are not part of it.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

limit=${ORT_TIMEOUT:-600}
package=onnxruntime
case ${ORT_FLAVOUR:-cpu} in
cpu) ;;
gpu) ORT_DIR=$ORT_GPU_DIR package=onnxruntime-gpu ;;
*) die "ORT_FLAVOUR=$ORT_FLAVOUR: want cpu or gpu" ;;
esac
base=${ORT_DIR%/*}
library=$ORT_DIR/libonnxruntime.so.$ORT_VERSION
reasons=()

give_up() {
	{
		printf '==> ERROR: ONNX Runtime %s, which runs the models, is not here and could not be had:\n' "$ORT_VERSION"
		printf '      - %s\n' "${reasons[@]}"
		printf '    What helps:\n'
		printf '      - ONNXRUNTIME_SHARED_LIBRARY_PATH=/path/to/libonnxruntime.so, if this machine has version %s or newer\n' "${ORT_VERSION%.*}"
		printf '      - Python 3 with pip or venv (Debian: python3-venv), or npm, and an index that they reach\n'
		printf '      - %s copied from a clone on another machine of the same kind\n' "$ORT_DIR"
	} >&2
	exit 1
}

if [ $package = onnxruntime ] && [ -n "${ONNXRUNTIME_SHARED_LIBRARY_PATH:-}" ]; then
	[ -e "$ONNXRUNTIME_SHARED_LIBRARY_PATH" ] ||
		die "ONNXRUNTIME_SHARED_LIBRARY_PATH names $ONNXRUNTIME_SHARED_LIBRARY_PATH, which is not there: mend it, or unset it and make ort downloads the library"
	say "ONNX Runtime is $ONNXRUNTIME_SHARED_LIBRARY_PATH, as ONNXRUNTIME_SHARED_LIBRARY_PATH says"
	exit 0
fi

# SHA-256 of the library and of the file beside it that GPU providers need, and
# of the npm package for all systems and of the library in it.
case $(uname -s)/$(uname -m) in
Linux/x86_64 | Linux/amd64)
	arch=x86_64 npm_arch=x64
	wheel_sum=8902e52a04bf6bf26f1613746811d6194f9c97ce7a6a7a28452b48522d3bd8d0
	shared_sum=086ec1d5388f64153d9c63470d126693db9a182c8ce236d3a1119068471b8a0d
	npm_sum=89688f5cf51c7e31befbb7b9101bc027799009b18d1baa9a5b1146a72e69538d
	;;
Linux/aarch64 | Linux/arm64)
	arch=aarch64 npm_arch=arm64
	wheel_sum=1444bdca675524f4d265f71397810c9b1f39164b6dccc8f1a39cd81d938e98f4
	shared_sum=3b6be288fbfb7dff8770d08a23defdde18e8f7e0f5a2b344a0e5e238c999ea88
	npm_sum=a27d21126db312aa8f02f3d5eaebe466e991f51f469882e6d0407d5a8b64afda
	;;
*)
	reasons+=("no library is known here for $(uname -s) on $(uname -m)")
	give_up
	;;
esac
wheel_size=23 most=64 provider_sum= # MB; the most MB of a file in the wheel
if [ $package = onnxruntime-gpu ]; then
	if [ "$arch" != x86_64 ]; then
		reasons+=("the wheel with CUDA is known here for x86_64 alone")
		give_up
	fi
	wheel_sum=99458e9d185dfa1a9b5f6510790ede3bedc25dea378adb904ce292b517eeaecf
	provider_sum=5feb727767b15d369ccd33a89b6509fbb41f0ff19353e8f61e3d545ec6b3025b
	wheel_size=202 most=256
fi
provider=libonnxruntime_providers_cuda.so
tgz_sum=cfdfb45ec4044b1fdca43e5d2e180fb6817e649ff8ad1e0dfc90e18e51b67037

# sum_is FILE SUM...: the file has one of these sums.
sum_is() {
	local file=$1 found sum
	shift
	found=$(sha256sum "$file" 2>/dev/null) || return 1
	for sum in "$@"; do
		if [ "${found%% *}" = "$sum" ]; then return 0; fi
	done
	return 1
}

# provided FOLDER: its CUDA provider is the known one, where there is to be one.
provided() { [ -z "$provider_sum" ] || sum_is "$1/$provider" "$provider_sum"; }
here() {
	if [ -n "$provider_sum" ]; then
		sum_is "$library" "$wheel_sum" && provided "$ORT_DIR"
	else
		sum_is "$library" "$wheel_sum" "$npm_sum"
	fi
}

if here; then
	say "ONNX Runtime $ORT_VERSION is in $ORT_DIR"
	exit 0
fi

mkdir -p "$ORT_DIR"
if have flock; then # Debian always has it; elsewhere two at once do the work twice.
	exec 9>"$base/lock"
	flock -w "$limit" 9 || die "another make ort has $base/lock for more than $limit s: is it stuck?"
	if here; then
		say "ONNX Runtime $ORT_VERSION is in $ORT_DIR"
		exit 0
	fi
fi
# What a killed run left, its lock being ours now, and what is not the library.
rm -rf "$base"/part.* "$library"
part=$(mktemp -d "$PWD/$base/part.XXXXXX")
trap 'rm -rf "$part"' EXIT
log=$base/log

# why STATUS NAME: what the log says at its end.
why() {
	if [ "$1" = 124 ] || [ "$1" = 137 ]; then
		printf '%s: not done after %s s (ORT_TIMEOUT)' "$2" "$limit"
	else
		printf '%s: %s' "$2" "$(grep -Ev '^[[:space:]]*$|complete log of this run' "$log" | tail -n 1 | cut -c 1-300)"
	fi
}

# put FILE...: gives what came its name; the library last, since it is what is looked for.
put() {
	local name
	for name in "$@" "${library##*/}"; do
		chmod 644 "$part/$name"
		mv -f "$part/$name" "$ORT_DIR/$name"
	done
}

from_pip() {
	local python
	python=$(pip_python) || {
		reasons+=("pip: $PYTHON has neither pip nor the venv module that would bring it")
		return 1
	}
	say "downloading ONNX Runtime $ORT_VERSION with pip: $wheel_size MB; MIT, what it contains is listed in its ThirdPartyNotices.txt"
	within "$limit" "$python" -m pip download --no-input --disable-pip-version-check --progress-bar off \
		--no-deps --only-binary=:all: --python-version 311 --implementation cp --abi cp311 \
		--platform "manylinux_2_28_$arch" --platform "manylinux_2_27_$arch" --dest "$part" "$package==$ORT_VERSION" </dev/null >"$log" 2>&1 || {
		reasons+=("$(why $? "pip download $package==$ORT_VERSION")")
		return 1
	}
	"$python" - "$part" "$most" "${library##*/}" libonnxruntime_providers_shared.so ${provider_sum:+"$provider"} >"$log" 2>&1 <<-'PYTHON' || {
		import glob, os, shutil, sys, zipfile
		part, most, *libraries = sys.argv[1:]
		wheel, = glob.glob(os.path.join(part, "*.whl"))
		members = ["capi/" + library for library in libraries] + ["LICENSE", "ThirdPartyNotices.txt"]
		with zipfile.ZipFile(wheel) as z:
		    for member in members:
		        info = z.getinfo("onnxruntime/" + member)
		        if info.file_size > int(most) << 20:
		            sys.exit(f"{member} has {info.file_size} bytes")
		        with z.open(info) as source, open(os.path.join(part, os.path.basename(member)), "wb") as target:
		            shutil.copyfileobj(source, target)
	PYTHON
		reasons+=("$(why $? "the wheel that pip brought")")
		return 1
	}
	if ! sum_is "$part/${library##*/}" "$wheel_sum" || ! sum_is "$part/libonnxruntime_providers_shared.so" "$shared_sum" || ! provided "$part"; then
		reasons+=("pip: the library in the wheel that came has another sum than the known one: it is not used")
		return 1
	fi
	put libonnxruntime_providers_shared.so ${provider_sum:+"$provider"} LICENSE ThirdPartyNotices.txt
}

from_npm() {
	have npm || {
		reasons+=("npm: it is not installed")
		return 1
	}
	say "downloading ONNX Runtime $ORT_VERSION with npm: 112 MB; MIT"
	(cd "$part" && npm_config_cache=$part/npm within "$limit" npm pack --ignore-scripts --no-audit --no-fund \
		--no-update-notifier --fetch-retries=1 --fetch-retry-mintimeout=2000 "onnxruntime-node@$ORT_VERSION") </dev/null >"$log" 2>&1 || {
		reasons+=("$(why $? "npm pack onnxruntime-node@$ORT_VERSION")")
		return 1
	}
	local tgz=$part/onnxruntime-node-$ORT_VERSION.tgz
	if ! sum_is "$tgz" "$tgz_sum" ||
		! tar -xzOf "$tgz" "package/bin/napi-v6/linux/$npm_arch/libonnxruntime.so.1" >"$part/${library##*/}" ||
		! sum_is "$part/${library##*/}" "$npm_sum"; then
		reasons+=("npm: the package that came has another sum than the known one: it is not used")
		return 1
	fi
	put
}

if [ $package = onnxruntime ]; then
	from_pip || from_npm || give_up
else
	from_pip || give_up
fi
say "ONNX Runtime $ORT_VERSION is in $ORT_DIR"
