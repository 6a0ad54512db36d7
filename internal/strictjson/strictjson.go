// Package strictjson reads JSON from untrusted clients: duplicate names, names with another case
// and invalid UTF-8 are errors, and values are copied only if necessary.
package strictjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Text is one value in a JSON text that json.Valid has accepted and that is valid UTF-8. It shares
// the memory of the text, because a body may contain hundreds of MiB of base64, which encoding/json
// would copy at every level; encoding/json also accepts "Prompt" for "prompt" and the second of two
// equal names.
type Text []byte

var (
	errJSON   = errors.New("not JSON")
	errEnough = errors.New("enough")

	// ErrUnknownKey means that an object has a member with an unknown name.
	ErrUnknownKey = errors.New("unknown key")
)

// Parse checks a complete JSON text and returns its value.
func Parse(b []byte) (Text, error) {
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("%w: invalid UTF-8", errJSON)
	}
	if !json.Valid(b) {
		return nil, fmt.Errorf("%w: %w", errJSON, json.Unmarshal(b, new(json.RawMessage))) // says where
	}
	return trim(b), nil
}

func trim(b []byte) Text {
	for len(b) > 0 && space(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && space(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// Kind returns the first byte: '{', '[', '"', 't', 'f', 'n', or that of a number.
func (t Text) Kind() byte { return t[0] }

// skip returns the end of the value that begins at i.
func (t Text) skip(i int) int {
	depth := 0
	for ; i < len(t); i++ {
		switch t[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return i
			}
			if depth == 0 {
				return i + 1
			}
		case '"':
			for i++; t[i] != '"'; i++ {
				if t[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

// next skips white space and one byte of punctuation.
func (t Text) next(i int, punctuation byte) int {
	for i < len(t) && space(t[i]) {
		i++
	}
	if i < len(t) && t[i] == punctuation {
		i++
	}
	for i < len(t) && space(t[i]) {
		i++
	}
	return i
}

// Object calls f for every member. A repeated name is an error.
func (t Text) Object(f func(key string, v Text) error) error {
	if t.Kind() != '{' {
		return fmt.Errorf("want an object: found %s", t.Short())
	}
	seen := map[string]bool{}
	for i := t.next(1, 0); i < len(t)-1; {
		end := t.skip(i)
		key, err := t[i:end].Str()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("duplicate name %q", Clip(key))
		}
		seen[key] = true
		i = t.next(end, ':')
		end = t.skip(i)
		if err := f(key, t[i:end]); err != nil {
			return fmt.Errorf("%s: %w", Clip(key), err)
		}
		i = t.next(end, ',')
	}
	return nil
}

// Fields returns the members of an object. A member whose name is not in names is an error.
func (t Text) Fields(names ...string) (map[string]Text, error) {
	fields := map[string]Text{}
	err := t.Object(func(key string, v Text) error {
		if !slices.Contains(names, key) {
			return ErrUnknownKey
		}
		fields[key] = v
		return nil
	})
	return fields, err
}

// Array calls f for every element.
func (t Text) Array(f func(i int, v Text) error) error {
	if t.Kind() != '[' {
		return fmt.Errorf("want an array: found %s", t.Short())
	}
	n := 0
	for i := t.next(1, 0); i < len(t)-1; n++ {
		end := t.skip(i)
		if err := f(n, t[i:end]); err != nil {
			return fmt.Errorf("[%d]: %w", n, err)
		}
		i = t.next(end, ',')
	}
	return nil
}

// Str returns the value of a string.
func (t Text) Str() (string, error) {
	if t.Kind() != '"' {
		return "", fmt.Errorf("want a string, found %s", t.Short())
	}
	var s string
	err := json.Unmarshal(t, &s)
	return s, err
}

// Integer returns the value of an integer, which must be in lo to hi.
func (t Text) Integer(lo, hi int64) (int64, error) {
	n, err := strconv.ParseInt(string(t), 10, 64)
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("want an integer from %d to %d, found %s", lo, hi, t.Short())
	}
	return n, nil
}

// Number returns the value of a number.
func (t Text) Number() (float64, error) {
	f, err := strconv.ParseFloat(string(t), 64)
	if err != nil {
		return 0, fmt.Errorf("want a number, found %s", t.Short())
	}
	return f, nil
}

// Base64 decodes the base64 in a string without allocating the string; standard alphabet with
// padding.
func (t Text) Base64() ([]byte, error) {
	if t.Kind() != '"' {
		return nil, fmt.Errorf("want base64, found %s", t.Short())
	}
	text := t[1 : len(t)-1]
	if bytes.IndexByte(text, '\\') >= 0 { // "\/" is how some write a slash
		s, err := t.Str()
		if err != nil {
			return nil, err
		}
		text = []byte(s)
	}
	out := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(out, text)
	if err != nil {
		return nil, fmt.Errorf("base64: %w", err)
	}
	return out[:n], nil
}

// Null reports whether the value is null.
func (t Text) Null() bool { return t.Kind() == 'n' }

// Each calls f for the elements of an array of length n; null has no elements. what is the plural
// noun for the n things in the error for an array of another length.
func (t Text) Each(n int, what string, f func(i int, v Text) error) error {
	if t == nil || t.Null() {
		return nil
	}
	count := 0
	err := t.Array(func(i int, v Text) error {
		if count++; i >= n {
			return nil
		}
		return f(i, v)
	})
	if err == nil && count != n {
		err = fmt.Errorf("%d entries for %d %s", count, n, what)
	}
	return err
}

// Length returns the number of elements of an array. It stops counting after most elements.
func (t Text) Length(most int) (int, error) {
	n := 0
	err := t.Array(func(int, Text) error {
		if n++; n > most {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return n, err
}

// Raw returns the value unchanged, or nil for null.
func (t Text) Raw() json.RawMessage {
	if t == nil || t.Null() {
		return nil
	}
	return json.RawMessage(t)
}

// Short returns the beginning of the value, for messages.
func (t Text) Short() string { return Clip(string(t[:min(len(t), 100)])) }

// Clip shortens an untrusted text for a message.
func Clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
