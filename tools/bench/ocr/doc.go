// Command ocr measures the text reader on PP-OCR models against RapidOCR, the Python
// reader that runs the same models: make bench-ocr, or scripts/tool.sh bench/ocr -h.
//
// The life of a run:
//
//  1. pictures.py draws 200 pictures, and makes PNG files of them, of the golden
//     ones and of a folder's that -extra names (pictures.go).
//  2. RapidOCR is started three times, once as it comes and twice with one thread,
//     and waits (reference.go, reference.py). Ours is a pool of child processes with
//     ONNX Runtime, as in production (runtime.go), and a reader in each mode.
//  3. Every picture is read by RapidOCR and by both of our modes, and what they read is
//     compared: lines, corners, rewards (compare.go).
//  4. The golden pictures are read again by each of the four, in turn and in changing
//     order, on the same two cores, and timed (ours.go, throughput.go).
//  5. The figures are held to their targets (rows.go) and written to docs/results:
//     ocr.json, in the form of the other suites, and ocr.md with tables and every
//     difference (results.go, markdown.go).
//
// A miss that tools/bench/misses.yml does not list ends the run with exit code 1.
package main
