package wire

import (
	"bytes"
	"math"
	"strconv"
)

// value consumes any value and returns its text.
func (s *scanner) value() ([]byte, error) {
	c := s.space()
	start := s.i
	var err error
	switch {
	case c == '{':
		err = s.object(func([]byte) error { _, err := s.value(); return err })
	case c == '[':
		err = s.array(func() error { _, err := s.value(); return err })
	case c == '"':
		_, err = s.str()
	case c == '-' || '0' <= c && c <= '9':
		_, _, err = s.number()
	default:
		err = s.literal()
	}
	if err != nil {
		return nil, err
	}
	return s.b[start:s.i], nil
}

// literal consumes true, false or null.
func (s *scanner) literal() error {
	for _, word := range [...]string{"true", "false", "null"} {
		if bytes.HasPrefix(s.b[s.i:], []byte(word)) {
			s.i += len(word)
			return nil
		}
	}
	return s.unexpected("a value")
}

// number reads a number and checks its range: an integer must fit int64, any
// other a finite float64.
func (s *scanner) number() (text []byte, integer bool, err error) {
	s.space()
	start := s.i
	digits := func() int {
		from := s.i
		for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
			s.i++
		}
		return s.i - from
	}
	at := func(set string) bool {
		if s.i < len(s.b) && bytes.IndexByte([]byte(set), s.b[s.i]) >= 0 {
			s.i++
			return true
		}
		return false
	}
	at("-")
	first := s.i
	if n := digits(); n == 0 || n > 1 && s.b[first] == '0' {
		return nil, false, s.fail(ErrJSON, "not a number")
	}
	integer = true
	if at(".") {
		integer = false
		if digits() == 0 {
			return nil, false, s.fail(ErrJSON, "no digit after the point")
		}
	}
	if at("eE") {
		integer = false
		at("+-")
		if digits() == 0 {
			return nil, false, s.fail(ErrJSON, "no digit in the exponent")
		}
	}
	text = s.b[start:s.i]
	if integer {
		if len(text) > 18 {
			_, err = strconv.ParseInt(string(text), 10, 64)
		}
	} else {
		_, err = strconv.ParseFloat(string(text), 64)
	}
	if err != nil {
		return nil, false, s.fail(ErrNumber, "%s", clip(text))
	}
	return text, integer, nil
}

// int64 reads an integer without fraction or exponent.
func (s *scanner) int64() (int64, error) {
	if c := s.space(); c != '-' && (c < '0' || c > '9') {
		return 0, s.unexpected("an integer")
	}
	text, integer, err := s.number()
	if err != nil {
		return 0, err
	}
	if !integer {
		return 0, s.fail(ErrValue, "%s is not an integer", clip(text))
	}
	v, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, s.fail(ErrNumber, "%s", clip(text))
	}
	return v, nil
}

// float64 reads any number.
func (s *scanner) float64() (float64, error) {
	if c := s.space(); c != '-' && (c < '0' || c > '9') {
		return 0, s.unexpected("a number")
	}
	text, _, err := s.number()
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsInf(v, 0) {
		return 0, s.fail(ErrNumber, "%s", clip(text))
	}
	return v, nil
}

// string reads a string into memory of its own.
func (s *scanner) string() (string, error) {
	b, err := s.str()
	return string(b), err
}

// scalar reads a number, a string, a boolean or null.
func (s *scanner) scalar() (any, error) {
	switch c := s.space(); {
	case c == '"':
		return s.string()
	case c == '-' || '0' <= c && c <= '9':
		return s.float64()
	case c == '{' || c == '[':
		return nil, errSlow
	}
	start := s.i
	if err := s.literal(); err != nil {
		return nil, err
	}
	switch s.b[start] {
	case 't':
		return true, nil
	case 'f':
		return false, nil
	}
	return nil, nil //nolint:nilnil // null is a value
}

// word reads a string that is usually one of known, without allocating then.
func word[T ~string](s *scanner, known ...T) (T, error) {
	v, err := s.str()
	if err != nil {
		return "", err
	}
	for _, k := range known {
		if string(v) == string(k) {
			return k, nil
		}
	}
	return T(v), nil
}

// pair reads an array of two integers.
func (s *scanner) pair() (v [2]int64, err error) {
	n := 0
	err = s.array(func() error {
		d, err := s.int64()
		if n < 2 {
			v[n] = d
		}
		n++
		return err
	})
	if err == nil && n != 2 {
		err = s.fail(ErrValue, "%d offsets, want 2", n)
	}
	return v, err
}

func readMap[V any](s *scanner, value func() (V, error)) (map[string]V, error) {
	m := make(map[string]V, 8)
	err := s.object(func(key []byte) error {
		v, err := value()
		m[string(key)] = v
		return err
	})
	return m, err
}
