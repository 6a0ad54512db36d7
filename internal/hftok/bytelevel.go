package hftok

import "unicode/utf8"

// byteAlphabet is GPT-2's printable alphabet: each byte stands for a character that is neither a space
// nor a control. See bytes_to_unicode in github.com/openai/gpt-2, src/encoder.py.
func byteAlphabet() *[256]rune { return &byteRunes }

//nolint:gochecknoglobals // a table
var byteRunes = func() (t [256]rune) {
	next := rune(256)
	for b := range t {
		if '!' <= b && b <= '~' || 0xA1 <= b && b <= 0xAC || b >= 0xAE {
			t[b] = rune(b)
			continue
		}
		t[b] = next
		next++
	}
	return t
}()

// runeBytes is byteRunes the other way round; -1 for characters outside the alphabet.
//
//nolint:gochecknoglobals // a table
var runeBytes = func() (t [512]int16) {
	for i := range t {
		t[i] = -1
	}
	for b, r := range byteRunes {
		t[r] = int16(b)
	}
	return t
}()

// appendByteLevel writes s in the byte alphabet.
func appendByteLevel(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = utf8.AppendRune(dst, byteRunes[s[i]])
	}
	return dst
}

// appendBytes undoes appendByteLevel; ok is false, and dst unchanged, where s has a character that is not
// of the alphabet.
func appendBytes(dst []byte, s string) (_ []byte, ok bool) {
	at := len(dst)
	for _, r := range s {
		if int(r) >= len(runeBytes) || runeBytes[r] < 0 {
			return dst[:at], false
		}
		dst = append(dst, byte(runeBytes[r]))
	}
	return dst, true
}
