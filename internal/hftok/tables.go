package hftok

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/rangetable"
)

// The Rust library brings Unicode tables of several ages: Oniguruma's (letters, numbers and words
// in patterns), the standard library's (numeric, lower case), the regex crate's (words), Unicode 8
// for punctuation and marks, and Unicode 9 for the normal forms. The tables of this file are
// what they differ by from Unicode 15, the age of Go's tables and of x/text's. Each was found by
// asking tokenizers 0.22.2 about every code point; TestGoldenClassesOfEveryCodePoint asks again.

// unicode8 and unicode9 hold the characters that are assigned in that version of Unicode.
//
//nolint:gochecknoglobals // tables
var (
	unicode8 = rangetable.Assigned("8.0.0")
	unicode9 = rangetable.Assigned("9.0.0")
)

// onigMore holds, by general category, the characters that Oniguruma knows for \p{…} and Go does not yet.
//
//nolint:gochecknoglobals // a table
var onigMore = map[string]*unicode.RangeTable{
	"Lu": {
		R16: []unicode.Range16{
			{0x1c89, 0x1c89, 1}, {0xa7cb, 0xa7cc, 1}, {0xa7da, 0xa7da, 1}, {0xa7dc, 0xa7dc, 1},
		},
		R32: []unicode.Range32{{0x10d50, 0x10d65, 1}},
	},
	"Ll": {
		R16: []unicode.Range16{
			{0x1c8a, 0x1c8a, 1}, {0xa7cd, 0xa7cd, 1}, {0xa7db, 0xa7db, 1},
		},
		R32: []unicode.Range32{{0x10d70, 0x10d85, 1}},
	},
	"Lm": {
		R32: []unicode.Range32{
			{0x10d4e, 0x10d4e, 1}, {0x10d6f, 0x10d6f, 1}, {0x16d40, 0x16d42, 1}, {0x16d6b, 0x16d6c, 1},
		},
	},
	"Lo": {
		R32: []unicode.Range32{
			{0x105c0, 0x105f3, 1},
			{0x10d4a, 0x10d4d, 1},
			{0x10d4f, 0x10d4f, 1},
			{0x10ec2, 0x10ec4, 1},
			{0x11380, 0x11389, 1},
			{0x1138b, 0x1138b, 1},
			{0x1138e, 0x1138e, 1},
			{0x11390, 0x113b5, 1},
			{0x113b7, 0x113b7, 1},
			{0x113d1, 0x113d1, 1},
			{0x113d3, 0x113d3, 1},
			{0x11bc0, 0x11be0, 1},
			{0x13460, 0x143fa, 1},
			{0x16100, 0x1611d, 1},
			{0x16d43, 0x16d6a, 1},
			{0x18cff, 0x18cff, 1},
			{0x1e5d0, 0x1e5ed, 1},
			{0x1e5f0, 0x1e5f0, 1},
			{0x2ebf0, 0x2ee5d, 1},
		},
	},
	"Mn": {
		R16: []unicode.Range16{{0x0897, 0x0897, 1}},
		R32: []unicode.Range32{
			{0x10d69, 0x10d6d, 1},
			{0x10efc, 0x10efc, 1},
			{0x113bb, 0x113c0, 1},
			{0x113ce, 0x113ce, 1},
			{0x113d0, 0x113d0, 1},
			{0x113d2, 0x113d2, 1},
			{0x113e1, 0x113e2, 1},
			{0x11f5a, 0x11f5a, 1},
			{0x1611e, 0x16129, 1},
			{0x1612d, 0x1612f, 1},
			{0x1e5ee, 0x1e5ef, 1},
		},
	},
	"Mc": {
		R32: []unicode.Range32{
			{0x113b8, 0x113ba, 1},
			{0x113c2, 0x113c2, 1},
			{0x113c5, 0x113c5, 1},
			{0x113c7, 0x113ca, 1},
			{0x113cc, 0x113cd, 1},
			{0x113cf, 0x113cf, 1},
			{0x1171e, 0x1171e, 1},
			{0x1612a, 0x1612c, 1},
		},
	},
	"Nd": {
		R32: []unicode.Range32{
			{0x10d40, 0x10d49, 1},
			{0x116d0, 0x116e3, 1},
			{0x11bf0, 0x11bf9, 1},
			{0x16130, 0x16139, 1},
			{0x16d70, 0x16d79, 1},
			{0x1ccf0, 0x1ccf9, 1},
			{0x1e5f1, 0x1e5fa, 1},
		},
	},
	"Pd": {
		R32: []unicode.Range32{{0x10d6e, 0x10d6e, 1}},
	},
	"Po": {
		R16: []unicode.Range16{
			{0x1b4e, 0x1b4f, 1}, {0x1b7f, 0x1b7f, 1},
		},
		R32: []unicode.Range32{
			{0x113d4, 0x113d5, 1},
			{0x113d7, 0x113d8, 1},
			{0x11be1, 0x11be1, 1},
			{0x16d6d, 0x16d6f, 1},
			{0x1e5ff, 0x1e5ff, 1},
		},
	},
	"Sm": {
		R32: []unicode.Range32{{0x10d8e, 0x10d8f, 1}},
	},
	"So": {
		R16: []unicode.Range16{
			{0x2427, 0x2429, 1}, {0x2ffc, 0x2fff, 1}, {0x31e4, 0x31e5, 1}, {0x31ef, 0x31ef, 1},
		},
		R32: []unicode.Range32{
			{0x1cc00, 0x1ccef, 1},
			{0x1cd00, 0x1ceb3, 1},
			{0x1f8b2, 0x1f8bb, 1},
			{0x1f8c0, 0x1f8c1, 1},
			{0x1fa89, 0x1fa89, 1},
			{0x1fa8f, 0x1fa8f, 1},
			{0x1fabe, 0x1fabe, 1},
			{0x1fac6, 0x1fac6, 1},
			{0x1fadc, 0x1fadc, 1},
			{0x1fadf, 0x1fadf, 1},
			{0x1fae9, 0x1fae9, 1},
			{0x1fbcb, 0x1fbef, 1},
		},
	},
}

// onigTables returns the tables of onigMore whose category starts with a prefix; none for "".
func onigTables(prefix string) (tables []*unicode.RangeTable) {
	for _, category := range slices.Sorted(maps.Keys(onigMore)) {
		if prefix != "" && strings.HasPrefix(category, prefix) {
			tables = append(tables, onigMore[category])
		}
	}
	return tables
}

// onigLetterMore and onigNumberMore hold letters for \p{L} and numbers for \p{N} that Go does not know
// yet, onigMarkMore marks of both kinds, and wordMore characters of the regex crate's \w that Go's classes lack.
//
//nolint:gochecknoglobals // tables
var (
	onigLetterMore = rangetable.Merge(onigTables("L")...)
	onigNumberMore = rangetable.Merge(onigTables("N")...)
	onigMarkMore   = rangetable.Merge(onigTables("M")...)
	wordMore       = rangetable.Merge(onigLetterMore, onigMarkMore, onigNumberMore)
)

// rustNumericMore holds numbers of Rust's char::is_numeric that Go does not know yet.
//
//nolint:gochecknoglobals // a table
var rustNumericMore = &unicode.RangeTable{
	R32: []unicode.Range32{
		{0x10d40, 0x10d49, 1},
		{0x116d0, 0x116e3, 1},
		{0x11bf0, 0x11bf9, 1},
		{0x11de0, 0x11de9, 1},
		{0x16130, 0x16139, 1},
		{0x16d70, 0x16d79, 1},
		{0x16ff4, 0x16ff6, 1},
		{0x1ccf0, 0x1ccf9, 1},
		{0x1e5f1, 0x1e5fa, 1},
	},
}

// punctMore holds characters that Unicode 8 takes for punctuation and Go does not.
//
//nolint:gochecknoglobals // a table
var punctMore = &unicode.RangeTable{
	R16: []unicode.Range16{{0x166d, 0x166d, 1}},
	R32: []unicode.Range32{{0x111c9, 0x111c9, 1}},
}

// markMore and markLess hold what Unicode 8 takes for a non-spacing mark and Go does not, and the reverse.
//
//nolint:gochecknoglobals // tables
var (
	markMore = rangetable.New(0x1734)
	markLess = rangetable.New(0x1885, 0x1886, 0xa9bd, 0x111c9)
)

// combiningMore and combiningLess hold what Unicode 9 takes for a combining mark and Go does not, and the reverse.
//
//nolint:gochecknoglobals // tables
var (
	combiningMore = rangetable.New(0x1cf2, 0x1cf3)
	combiningLess = rangetable.New(0x111c9)
)

// lowerMore maps capitals that Go does not know yet to their small letters.
//
//nolint:gochecknoglobals // a table
var lowerMore = unicode.SpecialCase{
	{Lo: 0x1c89, Hi: 0x1c89, Delta: [unicode.MaxCase]rune{unicode.LowerCase: 1}},
	{Lo: 0xa7cb, Hi: 0xa7cb, Delta: [unicode.MaxCase]rune{unicode.LowerCase: -42343}},
	{Lo: 0xa7cc, Hi: 0xa7cc, Delta: [unicode.MaxCase]rune{unicode.LowerCase: 1}},
	{Lo: 0xa7ce, Hi: 0xa7ce, Delta: [unicode.MaxCase]rune{unicode.LowerCase: 1}},
	{Lo: 0xa7d2, Hi: 0xa7d2, Delta: [unicode.MaxCase]rune{unicode.LowerCase: 1}},
	{Lo: 0xa7d4, Hi: 0xa7d4, Delta: [unicode.MaxCase]rune{unicode.LowerCase: 1}},
	{Lo: 0xa7da, Hi: 0xa7da, Delta: [unicode.MaxCase]rune{unicode.LowerCase: 1}},
	{Lo: 0xa7dc, Hi: 0xa7dc, Delta: [unicode.MaxCase]rune{unicode.LowerCase: -42561}},
	{Lo: 0x10d50, Hi: 0x10d65, Delta: [unicode.MaxCase]rune{unicode.LowerCase: 32}},
	{Lo: 0x16ea0, Hi: 0x16eb8, Delta: [unicode.MaxCase]rune{unicode.LowerCase: 27}},
}

// graphemeMore holds what joins a grapheme cluster and is no mark: the vowels AM of Thai and Lao.
//
//nolint:gochecknoglobals // a table
var graphemeMore = rangetable.New(0x0e33, 0x0eb3)

// extendLess holds marks that start a grapheme cluster of their own.
//
//nolint:gochecknoglobals // a table
var extendLess = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x102b, 0x102c, 1},
		{0x1038, 0x1038, 1},
		{0x1062, 0x1064, 1},
		{0x1067, 0x106d, 1},
		{0x1083, 0x1083, 1},
		{0x1087, 0x108c, 1},
		{0x108f, 0x108f, 1},
		{0x109a, 0x109c, 1},
		{0x1a61, 0x1a61, 1},
		{0x1a63, 0x1a64, 1},
		{0xaa7b, 0xaa7b, 1},
		{0xaa7d, 0xaa7d, 1},
	},
	R32: []unicode.Range32{{0x11720, 0x11721, 1}},
}
