//go:build !race

package hftok_test

// stride is 1: every text.
const stride = 1
