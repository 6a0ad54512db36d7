#!/usr/bin/env bash
# Makes the tiny ONNX models and everything they are compared with anew, in Python with
# the versions of models/export/requirements.txt, and holds the Go code to them. The
# files lie in testdata/models and beside the packages; `git diff --stat` then shows what
# changed. REWARDLOOP_EXPORT_PYTHON names a Python that has the packages; without it an
# environment is made below .cache (8 GB).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

pinned=models/export/requirements.txt
home=.cache/golden

install() {
	if [ -x "$home/bin/python" ] && cmp -s "$pinned" "$home/installed.txt" && "$home/bin/python" -c 'import torch' 2>/dev/null; then
		return 0
	fi
	new_venv "$home" "or name a Python that has the packages in REWARDLOOP_EXPORT_PYTHON"
	say "downloading with pip into $home: $(sed -n '/^# size/,/^[^#]/s/^# //p' "$pinned" | tr '\n' ' ')"
	"${VENV_PIP[@]}" --requirement "$pinned" ||
		die "pip failed, see above: this needs a network once"
	cp "$pinned" "$home/installed.txt"
}

python=${REWARDLOOP_EXPORT_PYTHON:-}
if [ -z "$python" ]; then
	install
	python=$home/bin/python
fi
if [ "${1:-}" = --environment ]; then exit 0; fi

say "tiny models and their goldens, into testdata/models"
"$python" models/export/tiny_preference.py testdata/models
"$python" models/export/tiny_vlm.py testdata/models
"$python" models/export/tiny_half.py testdata/models
say "what Pillow and transformers make of pictures, into internal/imageproc/testdata"
"$python" models/export/golden_pixels.py internal/imageproc/testdata
say "what tokenizers makes of texts, into internal/hftok/testdata"
"$python" internal/hftok/testdata/make_fixtures.py internal/hftok/testdata

use_models
$GO test -tags "$(scripts/tags.sh)" -count=1 -run Golden ./internal/hftok ./internal/imageproc ./rewards/preference ./rewards/vlm
git diff --stat -- testdata/models internal/imageproc/testdata internal/hftok/testdata || true
