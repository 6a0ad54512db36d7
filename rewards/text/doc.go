// Package text scores text rollouts by rules: correctness, format, length and repetition.
//
// The life of a score: a Spec of Specs decodes its options once, compiles what
// there is to compile and gives a scorer. The scorer takes the sample's response,
// and where its rule has one, the ground truth; cuts the answer out of the
// response; normalises both as the published function does; and compares. Every
// scorer is a pure function of the sample: no state is shared, no goroutine is
// started, nothing is loaded.
//
// The rules are published ones and carry their names: verl's (gsm8k, math_dapo,
// math_reward, the Search-R1 ones, the geometry3k format, the DAPO length
// penalty), verl-omni's (choice, mmk12) and RM-Gallery's (format, length,
// ngram_repetition, rouge_l, f1). They give the same doubles, also where the
// original is odd; README.md says where it is. The originals are Python and use
// its notions of whitespace, lower case, digits and length: python.go has them.
//
// Time grows linearly with the response for every scorer: tags are found by one
// walk over the text, patterns run on Go's regexp, which does not backtrack, and
// the longest common subsequence is found by bits against a reference of bounded
// length. A degenerate response of a megabyte costs milliseconds, not the step.
package text
