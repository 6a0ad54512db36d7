#!/usr/bin/env bash
# Makes the Python environment that RapidOCR is measured in, below .cache of this
# clone: about 110 MB to download (RapidOCR and ONNX Runtime under Apache-2.0 and MIT,
# OpenCV Apache-2.0). A second run looks and does nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

venv=.cache/ocr-venv
wanted=tools/bench/ocr/requirements.txt
if cmp -s "$wanted" "$venv/made-from.txt"; then
	exit 0
fi
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
	echo "venv.sh: $python is too old: NumPy 2.4 needs Python 3.11 or later; name one in PYTHON" >&2
	exit 1
}
echo "venv.sh: installing $wanted into $venv" >&2
rm -rf "$venv"
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$wanted"
"$venv/bin/python" -c 'import rapidocr'
cp "$wanted" "$venv/made-from.txt"
