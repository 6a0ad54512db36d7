package hftok

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// form is one of Unicode's normal forms as of Unicode 9, which is what the library uses.
//
// x/text decides whether there is anything to do. Where there is, the form is made here from x/text's
// tables: x/text itself would put a joiner into more than thirty marks on one letter, and knows
// decompositions that are younger than Unicode 9: a character that Unicode 9 does not assign is left as
// it is, and nothing is ordered or composed across it.
type form struct{ norm.Form }

func (f form) normalize(s string) (string, bool, error) {
	if f.quick(s) {
		return s, true, nil
	}
	var b strings.Builder
	b.Grow(len(s) + len(s)/4)
	var marked []markedRune // a starter and the marks after it
	flush := func() {
		f.write(&b, marked)
		marked = marked[:0]
	}
	for _, r := range s {
		if b.Len()+len(marked) > maxNormalized { // each has a byte or more
			return "", false, tooLong()
		}
		if r < utf8.RuneSelf {
			if len(marked) > 0 {
				flush()
			}
			marked = append(marked, markedRune{r, 0})
			continue
		}
		if !unicode.Is(unicode9, r) {
			flush()
			b.WriteRune(r)
			continue
		}
		marked = f.decompose(marked, r)
	}
	flush()
	return b.String(), true, nil
}

// quick reports whether s is in the form for certain.
func (f form) quick(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return f.IsNormalString(s)
		}
	}
	return true
}

type markedRune struct {
	r   rune
	ccc uint8
}

// Syllables of Hangul are decomposed by arithmetic (Unicode, section 3.12): 19 leading consonants, 21
// vowels, and 28 endings, of which the first is none.
const (
	hangulBase  = 0xAC00
	hangulCount = 19 * 21 * 28
)

// decompose appends the full decomposition of r.
func (f form) decompose(dst []markedRune, r rune) []markedRune {
	if i := r - hangulBase; 0 <= i && i < hangulCount {
		dst = append(dst, markedRune{0x1100 + i/(21*28), 0}, markedRune{0x1161 + i/28%21, 0})
		if i%28 > 0 {
			dst = append(dst, markedRune{0x11A7 + i%28, 0})
		}
		return dst
	}
	var buf [utf8.UTFMax]byte
	n := utf8.EncodeRune(buf[:], r)
	p := f.Properties(buf[:n])
	d := p.Decomposition()
	if d == nil {
		return append(dst, markedRune{r, p.CCC()})
	}
	for len(d) > 0 {
		r, n := utf8.DecodeRune(d)
		dst = append(dst, markedRune{r, f.Properties(d[:n]).CCC()})
		d = d[n:]
	}
	return dst
}

// write orders the marks of a run and, in the composing forms, puts together what belongs together.
func (f form) write(b *strings.Builder, run []markedRune) {
	for i := 0; i < len(run); {
		if run[i].ccc == 0 {
			i++
			continue
		}
		j := i
		for j < len(run) && run[j].ccc != 0 {
			j++
		}
		marks := run[i:j]
		sort.SliceStable(marks, func(x, y int) bool { return marks[x].ccc < marks[y].ccc })
		i = j
	}
	if f.Form == norm.NFC || f.Form == norm.NFKC {
		run = compose(run)
	}
	for _, m := range run {
		b.WriteRune(m.r)
	}
}

// compose is the canonical composition of Unicode, section 3.11 (D117).
func compose(run []markedRune) []markedRune {
	out := run[:0]
	starter := -1
	for _, m := range run {
		if starter >= 0 {
			last := out[len(out)-1]
			blocked := len(out)-1 > starter && (last.ccc == 0 || last.ccc >= m.ccc)
			if !blocked {
				if r, ok := pair(out[starter].r, m.r); ok {
					out[starter].r = r
					continue
				}
			}
		}
		if m.ccc == 0 {
			starter = len(out)
		}
		out = append(out, m)
	}
	return out
}

// pair returns the primary composite of two characters.
func pair(a, b rune) (rune, bool) {
	var buf [2 * utf8.UTFMax]byte
	n := utf8.EncodeRune(buf[:], a)
	second := buf[n : n+utf8.EncodeRune(buf[n:], b)]
	if norm.NFC.Properties(second).BoundaryBefore() {
		return 0, false // nothing is ever composed with it: most characters
	}
	n += len(second)
	c := norm.NFC.Bytes(buf[:n])
	r, width := utf8.DecodeRune(c)
	return r, width == len(c) && unicode.Is(unicode9, r)
}
