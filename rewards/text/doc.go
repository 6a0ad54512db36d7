// Package text scores text rollouts by rules: correctness, format, length and repetition.
//
// The life of a score: a Spec of Specs decodes its options once, compiles its patterns and builds a
// scorer. The scorer takes the sample's response and, if the rule needs it, the ground truth;
// extracts the answer from the response; normalises both as the published function does; and
// compares them. Every scorer is a pure function of the sample, without shared state, goroutines or
// files.
//
// The rules are published rules and have their names: verl's (gsm8k, math_dapo, math_reward, the
// Search-R1 rules, the geometry3k format, the DAPO length penalty), verl-omni's (choice, mmk12) and
// RM-Gallery's (format, length, ngram_repetition, rouge_l, f1). They return the same float64 values
// as the originals, even where the original is unusual; README.md lists these cases. The originals
// are Python and use Python's definitions of whitespace, lower case, digits and length, which
// python.go implements.
//
// The time of every scorer grows linearly with the response: tags are found in one pass over the
// text, patterns use Go's regexp, which does not backtrack, and the longest common subsequence is
// computed with bit vectors against a reference of limited length. A degenerate response of a
// megabyte takes milliseconds.
package text
