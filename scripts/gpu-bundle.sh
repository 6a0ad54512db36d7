#!/usr/bin/env bash
# Packs what proves rewardloop on a machine with an NVIDIA card and nothing else of ours: the
# program, the compiled tests behind the tag gpu, the bench, ONNX Runtime with its CUDA provider,
# models; in parts of at most 24 MiB. Beside them lie a static program that joins the parts and
# gpu-run.sh, which does the rest there (docs/gpu.md).
#
#   TARGET=pytorch   the machine has PyTorch for CUDA 13, whose libraries are used
#   TARGET=driver    it has a driver alone: CUDA's libraries come along (940 MB to download)
#   TARGET=cpu       no CUDA at all: what make gpu-bundle-check packs where no wheel is at hand
#   ARCH=sm_90       the cards' architecture: sm_90 Hopper, sm_80 A100, sm_89 Ada, sm_120 Blackwell
#   BUNDLE_DIR       where the parts go; default out/gpu-bundle, which is made anew
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

TARGET=${TARGET:-pytorch} ARCH=${ARCH:-sm_90}
parts=${BUNDLE_DIR:-out/gpu-bundle}
case $TARGET in pytorch | driver | cpu) ;; *) die "TARGET=$TARGET: want pytorch, driver or cpu" ;; esac
[ "$(uname -s)/$(uname -m)" = Linux/x86_64 ] || die "a bundle is made on Linux on x86-64, for machines of the same kind; this is $(uname -sm)"
if [ -e "$parts" ] && [ ! -e "$parts/bundle.json" ] && [ -n "$(ls -A "$parts")" ]; then
	die "$parts holds something that is no bundle: name another folder with BUNDLE_DIR"
fi

mkdir -p .cache/gpu
stage=$(mktemp -d "$PWD/.cache/gpu/stage.XXXXXX")
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage"/{bin,lib,models,src,licenses}

say "building the program, the tests and the bench, without Tesseract and without symbols"
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}
build=(-trimpath -tags nomsgpack -ldflags "-s -w -X main.version=$version -X $($GO list -m)/tools/bench/report.built=$version")
$GO build "${build[@]}" -o "$stage/bin/rewardloop" ./cmd/rewardloop
$GO build -C tools "${build[@]}" -o "$stage/bin/bench" ./bench
CGO_ENABLED=0 $GO build -C tools -trimpath -ldflags "-s -w" -o "$stage/bundle" ./bundle
while read -r package pattern; do
	test=${package//\//-}.test
	$GO test -c -trimpath -vet=off -tags gpu,nomsgpack -ldflags "-s -w" -o "$stage/bin/$test" "./$package"
	mkdir -p "$stage/src/$package"
	[ ! -d "$package/testdata" ] || cp -r "$package/testdata" "$stage/src/$package/"
	# Without a card: all others of the package that holds ONNX Runtime, and of those that do much
	# besides what runs models.
	cpu=ONNX
	[ "$package" != pool/ort ] || cpu=.
	printf '%s %s %s %s\n' "$package" "$test" "$cpu" "$pattern" >>"$stage/tests"
done < <(gpu_tests)

# What tests and the bench read of a clone.
mkdir -p "$stage/src/tools/bench" "$stage/src/testdata/golden"
cp go.mod "$stage/src/"
cp tools/bench/misses.yml tools/bench/reference.json "$stage/src/tools/bench/"
cp -r testdata/models "$stage/src/testdata/"
cp -r testdata/golden/images "$stage/src/testdata/golden/"

say "ONNX Runtime $ORT_VERSION"
from=$ORT_GPU_DIR
if [ "$TARGET" = cpu ]; then
	from=$ORT_DIR
	env -u ONNXRUNTIME_SHARED_LIBRARY_PATH scripts/ort.sh
else
	ORT_FLAVOUR=gpu scripts/ort.sh
fi
cp "$from"/libonnxruntime*.so* "$stage/lib/"
for text in LICENSE ThirdPartyNotices.txt; do
	[ ! -e "$from/$text" ] || cp "$from/$text" "$stage/licenses/onnxruntime-$text"
done
cp LICENSE deploy/THIRD_PARTY.md "$stage/licenses/"
# The C++ library, for machines without one; it stands behind the machine's own.
mkdir "$stage/lib/last"
for name in libstdc++.so.6 libgcc_s.so.1; do
	path=$(ldconfig -p 2>/dev/null | awk -v name="$name" '$1 == name && /x86-64/ { print $NF; exit }')
	[ -z "$path" ] || cp -L "$path" "$stage/lib/last/$name"
done

if [ "$TARGET" = driver ]; then
	wheels=.cache/gpu/wheels
	mkdir -p "$wheels"
	python=$(pip_python) || die "$PYTHON has neither pip nor the venv module that would bring it"
	while read -r requirement _ sum; do
		name=${requirement%%==*}
		wheel=$(find "$wheels" -name "${name//-/_}-${requirement##*==}-*.whl" -print -quit)
		if [ -z "$wheel" ]; then
			say "downloading $requirement with pip (proprietary licence of NVIDIA, which travels with it)"
			within "${ORT_TIMEOUT:-600}" "$python" -m pip download --no-input --disable-pip-version-check --progress-bar off \
				--no-deps --only-binary=:all: --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
				--platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --dest "$wheels" "$requirement" </dev/null >.cache/gpu/pip.log 2>&1 ||
				die "pip download $requirement failed: $(tail -n 1 .cache/gpu/pip.log)"
			wheel=$(find "$wheels" -name "${name//-/_}-${requirement##*==}-*.whl" -print -quit)
		fi
		sha256sum --status -c <<<"${sum#sha256:}  $wheel" || die "$wheel has another sum than scripts/requirements-cuda.txt says: remove it and run this again"
		"$python" - "$wheel" "$stage" <<-'PYTHON'
			import os, re, shutil, sys, zipfile
			wheel, stage = sys.argv[1:]
			with zipfile.ZipFile(wheel) as z:
			    for info in z.infolist():
			        name = os.path.basename(info.filename)
			        # Not those that nothing opens: debugging aids and BLAS for programs that know none.
			        if re.search(r"\.so(\.\d+)*$", name) and ".alt." not in name and "nvblas" not in name:
			            target = os.path.join(stage, "lib", name)
			        elif re.search(r"licen[cs]e", info.filename, re.I) and name and not info.is_dir():
			            target = os.path.join(stage, "licenses", os.path.basename(wheel).split("-")[0] + "-" + name)
			        else:
			            continue
			        with z.open(info) as source, open(target, "wb") as to:
			            shutil.copyfileobj(source, to)
		PYTHON
	done < <(grep -v '^#' scripts/requirements-cuda.txt)
fi
if [ "$TARGET" != cpu ]; then
	say "leaving the machine code for $ARCH in CUDA's libraries"
	for library in "$stage"/lib/*.so*; do
		case $library in *libonnxruntime.so* | *providers_shared*) continue ;; esac
		"$stage/bundle" thin "$ARCH" "$library"
	done
fi

say "models that read text"
mkdir -p bin # scripts/models.sh runs the program that was built here
[ -x bin/rewardloop ] || cp "$stage/bin/rewardloop" bin/rewardloop
scripts/models.sh
use_models
find "$REWARDLOOP_MODELS" -maxdepth 1 -type f \( -name '*PP-OCRv4*.onnx' -o -name '*ppocr_mobile_v2*.onnx' -o -name manifest.json \) -exec cp {} "$stage/models/" \;

printf '{"version": "%s", "target": "%s", "arch": "%s", "onnxruntime": "%s"}\n' "$version" "$TARGET" "$ARCH" "$ORT_VERSION" >"$stage/about.json"
cp scripts/gpu-run.sh "$stage/run.sh"
chmod -R u=rwX,go=rX "$stage"

rm -rf "$parts"
mkdir -p "$parts"
mv "$stage/bundle" "$parts/bundle"
"$parts/bundle" pack "$stage" "$parts" "gpu-$TARGET-${ARCH//_/}"
install -m 755 scripts/gpu-run.sh "$parts/gpu-run.sh"
total=$(du -sm "$parts" | cut -f 1)
say "$parts: $total MB; on the machine with the card: bash gpu-run.sh"
[ "$TARGET" = driver ] || [ "$total" -le 126 ] || die "the bundle has $total MB, and is to have less than 126 (120 MiB)"
