//go:build race

package hftok_test

// stride thins the texts of real tokenizers: the race detector makes them ten times dearer,
// and `make test` runs all of them without it.
const stride = 16
