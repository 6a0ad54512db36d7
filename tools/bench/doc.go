// Command bench measures every figure that the project promises and holds it to
// its target: make bench, or scripts/tool.sh bench -h.
//
// A suite is an area (one file rows_<area>.go), an experiment is one set-up that is
// measured, a row is one figure of it. A run takes each experiment in turn: it is
// set up, warmed, and measured five times; every time ours and the calibration (a
// bare version of the same work) run one after the other, in changing order, so
// that a busy machine slows both. From the readings of each repetition a row makes
// its figure; the median counts, or the worst where the row says so. Then the row's
// target is asked for its bound, which may scale with the calibration, and the row
// holds or misses.
//
// The results go to docs/results: a JSON file for each suite with machine, load and
// commit, and a table of all. A miss that tools/bench/misses.yml does not list, with its
// value and reason, ends the run with exit code 1.
//
// The suite python needs a Python with websockets and NumPy, so that it stands apart:
// make bench-python, or -suite python. The suites step and dispatch are whole steps of a
// trainer whose times are divided by -scale (10), and take half an hour: make bench-step. The
// suites isolation and capacity start the program itself, bin/rewardloop or what REWARDLOOP_BIN
// names, and take three hours and half an hour: make bench-isolation, make bench-capacity. The
// suite pymodels starts it, too, with models in Python, one of them in torch where make
// test-pymodels has made its environment, and takes ten minutes: make bench-pymodels. The suite
// queue starts it beside a nats-server that it builds, and takes five minutes:
// make bench-queue. The suite store starts it twice and takes five minutes: make bench-store. The suite gpu needs a card, or -device cpu for its small form: make bench-gpu.
//
// To add a figure: write a Row in its area's file, or a new experiment, or a new
// suite and its name in suites. Nothing else needs to know.
package main
