package wire

import (
	"bytes"
	"fmt"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting of arrays and objects in everything we read.
const maxDepth = 64

// scanner walks one JSON text strictly: no repeated names in any object, no
// invalid UTF-8 and no lone surrogates, no integer beyond int64, no float beyond
// float64, nesting of at most maxDepth. It allocates only for strings that hold
// escapes.
type scanner struct {
	b     []byte
	i     int
	depth int
	// keys is a stack: the names seen so far in every object that is open. It begins
	// in lent, which goes back when the outermost object ends.
	keys [][]byte
	lent *[24][]byte
}

// stacks lends the beginnings of stacks of names: made anew for each text they were a
// tenth of what a 25 KB sample allocates on its whole way.
var stacks = sync.Pool{New: func() any { return new([24][]byte) }} //nolint:gochecknoglobals // pools are shared by nature

func (s *scanner) fail(err error, format string, args ...any) error {
	return fmt.Errorf("%w: %s at byte %d", err, fmt.Sprintf(format, args...), s.i)
}

// space skips white space and returns the next byte, or 0 at the end.
func (s *scanner) space() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// expect skips white space and consumes c.
func (s *scanner) expect(c byte) error {
	if got := s.space(); got != c || s.i >= len(s.b) {
		return s.unexpected(fmt.Sprintf("%q", c))
	}
	s.i++
	return nil
}

func (s *scanner) unexpected(want string) error {
	if s.i >= len(s.b) {
		return s.fail(ErrJSON, "want %s, found the end", want)
	}
	return s.fail(ErrJSON, "want %s, found %q", want, s.b[s.i])
}

// end requires that only white space is left.
func (s *scanner) end() error {
	if s.space(); s.i < len(s.b) {
		return s.fail(ErrJSON, "text after the value")
	}
	return nil
}

func (s *scanner) enter() error {
	if s.depth++; s.depth > maxDepth {
		return s.fail(ErrNesting, "more than %d levels", maxDepth)
	}
	return nil
}

// object walks an object. For every name it calls f, which must consume the value.
func (s *scanner) object(f func(key []byte) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	base := len(s.keys)
	if base == 0 && s.lent == nil {
		s.lent, _ = stacks.Get().(*[24][]byte)
		s.keys = s.lent[:0]
	}
	defer s.leave(base)
	var many map[string]struct{}
	if s.space() == '}' {
		s.i++
		return nil
	}
	for {
		key, err := s.key(base, &many)
		if err != nil {
			return err
		}
		if err := f(key); err != nil {
			return err
		}
		switch s.space() {
		case ',':
			s.i++
		case '}':
			s.i++
			return nil
		default:
			return s.unexpected("',' or '}'")
		}
	}
}

// leave forgets the names of the object that began with base of them on the stack.
func (s *scanner) leave(base int) {
	s.depth--
	s.keys = s.keys[:base]
	if base == 0 {
		clear(s.lent[:]) // what it pointed at may be a whole message
		stacks.Put(s.lent)
		s.keys, s.lent = nil, nil
	}
}

// key reads a name and its colon and refuses a name seen before. Up to 16 names
// are compared one by one, more through a map.
func (s *scanner) key(base int, many *map[string]struct{}) ([]byte, error) {
	if s.space() != '"' {
		return nil, s.unexpected("a name")
	}
	key, err := s.str()
	if err != nil {
		return nil, err
	}
	const few = 16
	if *many == nil && len(s.keys)-base >= few {
		*many = make(map[string]struct{}, 2*few)
		for _, k := range s.keys[base:] {
			(*many)[string(k)] = struct{}{}
		}
	}
	if *many != nil {
		if _, dup := (*many)[string(key)]; dup {
			return nil, s.fail(ErrDuplicate, "%q", clip(key))
		}
		(*many)[string(key)] = struct{}{}
	} else {
		for _, k := range s.keys[base:] {
			if bytes.Equal(k, key) {
				return nil, s.fail(ErrDuplicate, "%q", clip(key))
			}
		}
		s.keys = append(s.keys, key)
	}
	return key, s.expect(':')
}

// array walks an array. For every element it calls f, which must consume it.
func (s *scanner) array(f func() error) error {
	if err := s.expect('['); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer func() { s.depth-- }()
	if s.space() == ']' {
		s.i++
		return nil
	}
	for {
		if err := f(); err != nil {
			return err
		}
		switch s.space() {
		case ',':
			s.i++
		case ']':
			s.i++
			return nil
		default:
			return s.unexpected("',' or ']'")
		}
	}
}

// str reads a string. The result aliases the text unless it held escapes.
func (s *scanner) str() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	start, ascii := s.i, true
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			v := s.b[start:s.i]
			if !ascii && !utf8.Valid(v) {
				return nil, s.fail(ErrUTF8, "in the string that ends")
			}
			s.i++
			return v, nil
		case c == '\\':
			return s.unescape(start)
		case c < 0x20:
			return nil, s.fail(ErrJSON, "control character %#02x in a string", c)
		case c >= utf8.RuneSelf:
			ascii = false
		}
		s.i++
	}
	return nil, s.fail(ErrJSON, "unterminated string")
}

// unescape reads on from the first backslash of the string that began at start.
// Unescaped text is never longer than the text itself.
func (s *scanner) unescape(start int) ([]byte, error) {
	out := append(make([]byte, 0, s.guess(start)), s.b[start:s.i]...)
	for s.i < len(s.b) {
		c := s.b[s.i]
		switch {
		case c == '"':
			s.i++
			if !utf8.Valid(out) {
				return nil, s.fail(ErrUTF8, "in the string that ends")
			}
			return out, nil
		case c == '\\' && s.i+1 < len(s.b) && s.b[s.i+1] == '"':
			// By far the most frequent: the sample is JSON inside a JSON string.
			out = append(out, '"')
			s.i += 2
		case c == '\\':
			var err error
			if out, err = s.escape(out); err != nil {
				return nil, err
			}
		case c < 0x20:
			return nil, s.fail(ErrJSON, "control character %#02x in a string", c)
		default:
			from := s.i
			for s.i < len(s.b) && s.b[s.i] != '"' && s.b[s.i] != '\\' && s.b[s.i] >= 0x20 {
				s.i++
			}
			out = append(out, s.b[from:s.i]...)
		}
	}
	return nil, s.fail(ErrJSON, "unterminated string")
}

// guess returns the length in text of the string that began at start, so that
// its unescaped form is allocated once.
func (s *scanner) guess(start int) int {
	for i := s.i; i < len(s.b); i++ {
		switch s.b[i] {
		case '\\':
			i++
		case '"':
			return i - start
		}
	}
	return len(s.b) - start
}

// escape consumes one escape sequence and appends what it stands for.
func (s *scanner) escape(out []byte) ([]byte, error) {
	if s.i+1 >= len(s.b) {
		return nil, s.fail(ErrJSON, "unterminated escape")
	}
	c := s.b[s.i+1]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return s.unicode(out)
	default:
		return nil, s.fail(ErrJSON, "unknown escape \\%c", c)
	}
	s.i += 2
	return append(out, c), nil
}

// unicode consumes \uXXXX, or two of them that make a surrogate pair.
func (s *scanner) unicode(out []byte) ([]byte, error) {
	r, err := s.hex4()
	if err != nil {
		return nil, err
	}
	if utf16.IsSurrogate(r) {
		var low rune
		if s.i+1 < len(s.b) && s.b[s.i] == '\\' && s.b[s.i+1] == 'u' {
			if low, err = s.hex4(); err != nil {
				return nil, err
			}
		}
		if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
			return nil, s.fail(ErrUTF8, "lone surrogate")
		}
	}
	return utf8.AppendRune(out, r), nil
}

// hex4 consumes \uXXXX.
func (s *scanner) hex4() (rune, error) {
	if s.i+6 > len(s.b) {
		return 0, s.fail(ErrJSON, "unterminated escape")
	}
	var r rune
	for _, c := range s.b[s.i+2 : s.i+6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, s.fail(ErrJSON, "%q in a \\u escape", c)
		}
		r = r<<4 | rune(c)
	}
	s.i += 6
	return r, nil
}

// clip shortens peer's text for an error message.
func clip(b []byte) string {
	const most = 64
	if len(b) > most {
		return string(b[:most]) + "…"
	}
	return string(b)
}
