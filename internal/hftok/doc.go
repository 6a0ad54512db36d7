// Package hftok reads a Hugging Face tokenizer.json and converts texts to the ids that the library
// "tokenizers" returns for them, in pure Go.
//
// The life of a text: Encode first searches for the added tokens that are matched unchanged
// (added.go). The text between them is normalised (normalize.go, forms.go, charsmap.go) and
// searched for the added tokens that are matched after normalisation. The pre-tokenizer splits the
// rest into pieces (pretok.go, split.go), with a regular expression if the file has one: the
// expressions of GPT-2, CLIP, Llama 3 and Qwen 2 have hand-written scanners (scan.go), all others
// run in regexp2 under a time limit (regex.go). The model (bpe.go, unigram.go, wordpiece.go, which
// also has whole words) maps each piece to ids, which are kept in a bounded cache (cache.go). The
// post-processor adds the special tokens (post.go). Decode does the reverse: ids to tokens, and
// tokens through the decoder to a text (decode.go).
//
// Load reads a file once, with limits for everything in it. A component, a key or a part of a
// regular expression that the package does not support fails the load with its place and name: a
// tokenizer that loads returns the ids of the library. The character classes are those of
// tokenizers 0.22.2, which differ from Go's for characters that are newer or older than Unicode 15
// (classes.go, tables.go). In expressions without a scanner, the names of scripts (\p{Han}) are
// those of Go's Unicode.
//
// Not supported are offsets, the sections "padding" and "truncation", overflowing parts of a
// truncated text, BPE dropout, the pre-tokenizer UnicodeScripts, and post-processors that add
// tokens twice.
//
// A Tokenizer is immutable except for its cache, and safe for concurrent use. It starts no
// goroutine itself; regexp2 keeps one clock goroutine alive for about two seconds after the last
// use of an expression without a scanner.
package hftok
