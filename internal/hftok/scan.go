package hftok

import (
	"strings"
	"unicode/utf8"
)

// The expressions that nearly every tokenizer in use cuts its texts with.
const (
	exprGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	exprCLIP   = `'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+`
	exprLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	exprQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	exprSpaces = `\s+`
	exprBlanks = ` {2,}`
)

// scanner returns how many bytes of s its expression matches at i; 0: none. No expression here matches
// the empty string.
type scanner func(s string, i int) int

// handWritten returns the scanner of an expression, or nil.
func handWritten(expr string) finder {
	switch expr {
	case exprGPT2:
		return scanner(scanGPT2)
	case exprCLIP:
		return scanner(scanCLIP)
	case exprLlama3:
		return scanner(func(s string, i int) int { return scanLlama(s, i, 3) })
	case exprQwen2:
		return scanner(func(s string, i int) int { return scanLlama(s, i, 1) })
	case exprSpaces:
		return scanner(func(s string, i int) int { return run(s, i, space) - i })
	case exprBlanks:
		return scanner(scanBlanks)
	}
	return nil
}

func (next scanner) spans(dst []span, s string) ([]span, error) {
	done := 0
	for i := 0; i < len(s); {
		n := next(s, i)
		if n == 0 {
			_, n = utf8.DecodeRuneInString(s[i:])
			i += n
			continue
		}
		if done < i {
			dst = append(dst, span{done, i, false})
		}
		dst = append(dst, span{i, i + n, true})
		i += n
		done = i
	}
	if done < len(s) {
		dst = append(dst, span{done, len(s), false})
	}
	return dst, nil
}

// run returns where the characters of class c end that start at i.
func run(s string, i int, c class) int {
	for {
		k, n := classAt(s, i)
		if n == 0 || k != c {
			return i
		}
		i += n
	}
}

// contraction matches 's, 't, 're, 've, 'm, 'll and 'd. Where case does not matter, ſ is an s as well.
func contraction(s string, i int, fold bool) int {
	if s[i] != '\'' || i+1 == len(s) {
		return 0
	}
	a, b := s[i+1], byte(0)
	if i+2 < len(s) {
		b = s[i+2]
	}
	if fold {
		if strings.HasPrefix(s[i+1:], "ſ") {
			return 1 + len("ſ")
		}
		a, b = small(a), small(b)
	}
	switch {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 2
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return 3
	}
	return 0
}

func small(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

func scanGPT2(s string, i int) int {
	if n := contraction(s, i, false); n > 0 {
		return n
	}
	at := i
	if s[i] == ' ' {
		at++
	}
	if k, n := classAt(s, at); n > 0 && k != space {
		return run(s, at+n, k) - i
	}
	return blanks(s, i)
}

func scanCLIP(s string, i int) int {
	if n := contraction(s, i, false); n > 0 {
		return n
	}
	switch k, n := classAt(s, i); k {
	case space:
		return 0
	case number:
		return n
	default:
		return run(s, i+n, k) - i
	}
}

// scanLlama is Llama 3's and Qwen 2's: they differ in how many digits go together.
func scanLlama(s string, i, digits int) int {
	if n := contraction(s, i, true); n > 0 {
		return n
	}
	k, n := classAt(s, i)
	switch k {
	case letter:
		return run(s, i+n, letter) - i
	case number:
		end := i + n
		for digits--; digits > 0; digits-- {
			k, n := classAt(s, end)
			if k != number {
				break
			}
			end += n
		}
		return end - i
	}
	// One character that is neither letter, digit nor line end goes with the word behind it.
	if s[i] != '\r' && s[i] != '\n' {
		if next, m := classAt(s, i+n); m > 0 && next == letter {
			return run(s, i+n+m, letter) - i
		}
	}
	at := i
	if s[i] == ' ' {
		at++
	}
	if next, m := classAt(s, at); m > 0 && next == other {
		end := run(s, at+m, other)
		for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
			end++
		}
		return end - i
	}
	end := run(s, i, space)
	if last := strings.LastIndexAny(s[i:end], "\r\n"); last >= 0 {
		return last + 1
	}
	return blanks(s, i)
}

// blanks matches \s+(?!\S)|\s+ at i, where white space stands: all of it at the end of the text, else all
// but its last character, unless that is the only one.
func blanks(s string, i int) int {
	end := run(s, i, space)
	if end == len(s) {
		return end - i
	}
	_, last := utf8.DecodeLastRuneInString(s[i:end])
	if end-last > i {
		return end - last - i
	}
	return end - i
}

// scanBlanks matches two spaces and more.
func scanBlanks(s string, i int) int {
	end := i
	for end < len(s) && s[end] == ' ' {
		end++
	}
	if end-i < 2 {
		return 0
	}
	return end - i
}
