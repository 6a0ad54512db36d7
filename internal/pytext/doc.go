// Package pytext says what Python's str and re mean by whitespace and lower case,
// where Go's own notions differ. Rewards that carry a published name compare
// texts, and their formulas are written in Python.
//
// It holds no state and reads no data beside Go's own Unicode tables. Compared
// over all code points with CPython 3.11, whose Unicode 14 lacks 111 marks of
// Go's Unicode 15.
package pytext
