#!/usr/bin/env bash
# Prints the build tags, with commas: "nomsgpack", which leaves out of gin what nothing
# here speaks, and "tesseract" where a C++ compiler finds the headers of Tesseract and
# Leptonica. Without that the OCR reward runs the tesseract program instead.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cxx=$($GO env CXX)
if [ "$($GO env CGO_ENABLED)" = 1 ] && have "${cxx%% *}" &&
	printf '#include <tesseract/baseapi.h>\n#include <leptonica/allheaders.h>\n' |
	$cxx -x c++ -I/usr/local/include -E - >/dev/null 2>&1; then
	echo nomsgpack,tesseract
else
	echo nomsgpack
fi
