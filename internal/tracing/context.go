package tracing

import (
	"encoding/hex"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
)

// SpanID identifies a span within its trace; zero: no span.
type SpanID [8]byte

// Context identifies a span of a trace. The zero value is no trace.
type Context struct {
	Trace   [16]byte
	Span    SpanID
	Sampled bool
}

// Traced reports whether spans of the context are recorded.
func (c Context) Traced() bool { return c.Sampled }

// MaxBytes is the maximum length of a traceparent. Version 00 has 55 bytes; later versions may be
// longer.
const MaxBytes = 512

// errForm says what a traceparent is.
var errForm = errors.New("want a W3C traceparent, 00-<32 hex digits>-<16 hex digits>-<2 hex digits> in lower case, where neither id is zero")

// Parse parses a W3C traceparent. Additional fields of versions after 00 are ignored, as the
// standard requires.
func Parse(text string) (c Context, err error) {
	const size = 55
	if len(text) < size || len(text) > MaxBytes || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return Context{}, errForm
	}
	var version, flags [1]byte
	if !unhex(version[:], text[:2]) || !unhex(c.Trace[:], text[3:35]) || !unhex(c.Span[:], text[36:52]) || !unhex(flags[:], text[53:size]) {
		return Context{}, errForm
	}
	switch {
	case version[0] == 0xff, version[0] == 0 && len(text) != size, len(text) > size && text[size] != '-':
		return Context{}, errForm
	case c.Trace == [16]byte{} || c.Span == SpanID{}:
		return Context{}, errForm
	}
	c.Sampled = flags[0]&1 != 0
	return c, nil
}

// unhex reads digits in lower case.
func unhex(into []byte, text string) bool {
	digit := func(b byte) byte {
		switch {
		case '0' <= b && b <= '9':
			return b - '0'
		case 'a' <= b && b <= 'f':
			return b - 'a' + 10
		}
		return 0xff
	}
	for i := range into {
		high, low := digit(text[2*i]), digit(text[2*i+1])
		if high > 15 || low > 15 {
			return false
		}
		into[i] = high<<4 | low
	}
	return true
}

// String returns the traceparent of the context, or "" for the zero value.
func (c Context) String() string {
	if c.Trace == [16]byte{} {
		return ""
	}
	out := append(make([]byte, 0, 55), "00-"...)
	out = hex.AppendEncode(out, c.Trace[:])
	out = append(out, '-')
	out = hex.AppendEncode(out, c.Span[:])
	if c.Sampled {
		return string(append(out, "-01"...))
	}
	return string(append(out, "-00"...))
}

// Child returns a new span of the same trace.
func (c Context) Child() Context {
	c.Span = newSpan()
	return c
}

// Attempt returns the span of a worker's attempt below the span of the sample, derived from the
// number of its ticket and the worker. Gateway and worker derive the same span independently.
func (c Context) Attempt(number int, worker string) Context {
	h := fnv.New64a()
	_, _ = h.Write(c.Span[:]) // a hash takes everything
	_, _ = h.Write(strconv.AppendInt(make([]byte, 0, 20), int64(number), 10))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(worker))
	h.Sum(c.Span[:0])
	if c.Span == (SpanID{}) {
		c.Span[7] = 1
	}
	return c
}

// newSpan is a random name that is not zero.
func newSpan() (s SpanID) {
	put(s[:], rand.Uint64()|1) //nolint:gosec // a name needs no secret randomness
	return s
}

func newTrace() (t [16]byte) {
	put(t[:8], rand.Uint64())   //nolint:gosec // likewise
	put(t[8:], rand.Uint64()|1) //nolint:gosec // likewise
	return t
}
