// Package pytext implements whitespace and lower case like Python's str and re, where Go differs.
// Rewards with a published name compare texts, and their formulas are written in Python.
//
// The package has no state and uses only Go's Unicode tables. It was compared over all code points
// with CPython 3.11, whose Unicode 14 lacks 111 marks of Go's Unicode 15.
package pytext
