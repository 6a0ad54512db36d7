package hftok

import (
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"
)

// charsmap is sentencepiece's precompiled normaliser: a double-array trie (Darts) of strings, each
// with the place of its replacement in a list of strings that end with a zero byte. The layout is
// that of sentencepiece's normalizer.cc: uint32 size of the trie in bytes, the trie's uint32 units,
// then the replacements, all little-endian.
type charsmap struct {
	units        []uint32
	replacements string
}

func newCharsmap(blob []byte) (*charsmap, error) {
	if len(blob) < 4 {
		return nil, errors.New("precompiled_charsmap is too short")
	}
	size, rest := int64(binary.LittleEndian.Uint32(blob)), blob[4:]
	if size > int64(len(rest)) || size < 4 {
		return nil, errors.New("precompiled_charsmap: the trie is longer than the map")
	}
	m := &charsmap{units: make([]uint32, size/4), replacements: string(rest[size/4*4:])}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(rest[4*i:])
	}
	if !utf8.ValidString(m.replacements) {
		return nil, errors.New("precompiled_charsmap: the replacements are not UTF-8")
	}
	return m, nil
}

// normalize replaces grapheme clusters of less than six bytes, and where such a cluster has no
// replacement, its characters one by one.
func (m *charsmap) normalize(s string) (string, bool, error) {
	var b strings.Builder
	b.Grow(len(s))
	for len(s) > 0 {
		n := cluster(s)
		if by, ok := m.replacement(s[:n]); ok && n < 6 {
			b.WriteString(by)
		} else {
			m.eachChar(&b, s[:n])
		}
		if b.Len() > maxNormalized {
			return "", false, tooLong()
		}
		s = s[n:]
	}
	return b.String(), true, nil
}

func (m *charsmap) eachChar(b *strings.Builder, s string) {
	for len(s) > 0 {
		_, n := utf8.DecodeRuneInString(s)
		if by, ok := m.replacement(s[:n]); ok {
			b.WriteString(by)
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
}

// replacement returns what the trie has for the shortest of its strings that begins s.
func (m *charsmap) replacement(s string) (string, bool) {
	at := offset(m.units[0])
	for i := range len(s) {
		at ^= uint32(s[i])
		if s[i] == 0 || at >= uint32(len(m.units)) {
			return "", false
		}
		unit := m.units[at]
		if unit&(1<<31|0xFF) != uint32(s[i]) {
			return "", false
		}
		at ^= offset(unit)
		if unit>>8&1 == 1 && at < uint32(len(m.units)) {
			return m.text(m.units[at] & (1<<31 - 1))
		}
	}
	return "", false
}

// offset is where the children of a unit lie, relative to it.
func offset(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

func (m *charsmap) text(at uint32) (string, bool) {
	if int(at) > len(m.replacements) {
		return "", false
	}
	s := m.replacements[at:]
	if end := strings.IndexByte(s, 0); end >= 0 {
		s = s[:end]
	}
	return s, utf8.ValidString(s)
}

// cluster returns the length of the grapheme cluster that begins s. Of UAX #29 it knows what can matter to
// a replacement, which is for less than six bytes: line ends and controls (rules GB3 to GB5), Hangul (GB6
// to GB8), what extends a character (GB9, GB9a) and what goes before one (GB9b). Flags, joined emoji and
// Indic conjuncts are longer than that; they come as several clusters.
func cluster(s string) int {
	if strings.HasPrefix(s, "\r\n") {
		return 2
	}
	last, n := utf8.DecodeRuneInString(s)
	if breaks(last) {
		return n
	}
	for n < len(s) {
		r, k := utf8.DecodeRuneInString(s[n:])
		if !extends(r) && !hangul(last, r) && (!goesBefore(last) || breaks(r)) {
			break
		}
		last = r
		n += k
	}
	return n
}

// hangul reports whether two parts of a Hangul syllable belong together.
func hangul(a, b rune) bool {
	lead := 0x1100 <= a && a <= 0x115F || 0xA960 <= a && a <= 0xA97C
	syllable := hangulBase <= a && a < hangulBase+hangulCount
	open := syllable && (a-hangulBase)%28 == 0
	vowel := 0x1160 <= a && a <= 0x11A7 || 0xD7B0 <= a && a <= 0xD7C6
	ending := 0x11A8 <= a && a <= 0x11FF || 0xD7CB <= a && a <= 0xD7FB
	switch {
	case 0x1100 <= b && b <= 0x115F, 0xA960 <= b && b <= 0xA97C, hangulBase <= b && b < hangulBase+hangulCount:
		return lead
	case 0x1160 <= b && b <= 0x11A7, 0xD7B0 <= b && b <= 0xD7C6:
		return lead || open || vowel
	case 0x11A8 <= b && b <= 0x11FF, 0xD7CB <= b && b <= 0xD7FB:
		return syllable || vowel || ending
	}
	return false
}

// goesBefore is Grapheme_Cluster_Break=Prepend.
func goesBefore(r rune) bool {
	switch r {
	case 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0xD4E, 0x110BD, 0x110CD, 0x111C2, 0x111C3, 0x1193F, 0x11941, 0x113D1, 0x11A3A, 0x11D46, 0x11F02:
		return true
	}
	return 0x600 <= r && r <= 0x605 || 0x11A84 <= r && r <= 0x11A89
}

// breaks reports controls, which stand alone.
func breaks(r rune) bool {
	return !goesBefore(r) && r != 0x200C && r != 0x200D && isControl(r)
}
