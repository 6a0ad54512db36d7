// Package pytext implements whitespace and lower case as Python's str and re define them, where Go
// differs. Rewards that carry a published name compare texts, and their formulas are written in
// Python.
//
// It holds no state and reads no data beside Go's own Unicode tables. Compared
// over all code points with CPython 3.11, whose Unicode 14 lacks 111 marks of
// Go's Unicode 15.
package pytext
