// Package hftok reads a Hugging Face tokenizer.json and turns texts into the ids that the
// library "tokenizers" gives for them, in plain Go.
//
// The life of a text: Encode first looks for the added tokens that are matched as they are written
// (added.go); what lies between them is normalised (normalize.go, forms.go, charsmap.go) and searched
// for the added tokens that are matched after that. The rest is cut into pieces by the
// pre-tokenizer (pretok.go, split.go), with a regular expression where one is asked for: the
// expressions of GPT-2, CLIP, Llama 3 and Qwen 2 have scanners written by hand (scan.go), all others
// run in regexp2 under a time limit (regex.go). The model (bpe.go, unigram.go, wordpiece.go,
// which has the whole words too) gives each piece its ids, which a bounded cache remembers (cache.go). The
// post-processor puts the special tokens round them (post.go). Decode goes the other way: ids to
// tokens, and tokens through the decoder to a text (decode.go).
//
// A file is read once, by Load, with bounds on everything it says. A component, a key or a
// piece of regular expression that is not known here fails the load with its place and name: a
// tokenizer that loads gives the library's ids. Characters are classed as tokenizers 0.22.2 classes
// them, which differs from Go in what is younger or older than Unicode 15 (classes.go, tables.go).
// In expressions without a scanner, names of scripts (\p{Han}) are those of Go's Unicode.
//
// What it does not do: offsets, what the sections "padding" and "truncation" ask for, overflowing parts of a
// truncated text, BPE dropout, the pre-tokenizer UnicodeScripts, and post-processors that add tokens twice.
//
// A Tokenizer is immutable but for its cache and safe for concurrent use. It starts no goroutine
// itself; regexp2 keeps one clock goroutine alive for some two seconds after an expression without
// a scanner was last used.
package hftok
