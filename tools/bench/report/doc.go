// Package report is the form in which benchmarks tell what they found, shared by bench and
// bench/ocr.
//
// The life of a report: Begin notes where, when and of which commit it is. Its Rows are
// figures, each held to a Bound. Judge compares them with the known misses of
// tools/bench/misses.yml (ReadMisses), and Tell says what is to be done about the others. End
// closes it, Write makes its JSON file in docs/results, and WriteTable the page of all of
// them.
package report
