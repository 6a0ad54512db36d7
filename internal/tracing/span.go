package tracing

import (
	"encoding/binary"
	"strings"
	"time"
)

// Kind is the role of a span in a request and its response; the numbers are those of OTLP.
type Kind int

// The kinds that are used: work within a process, and both sides of a request.
const (
	Internal Kind = 1
	Server   Kind = 2
	Client   Kind = 3
)

// Span is a span of a trace. It must not change after it was passed to a sink.
type Span struct {
	Context

	Parent     SpanID // zero: the first span of its trace
	Name       string
	Kind       Kind
	Start, End time.Time
	Attributes []Attribute
	// Links are related spans in other traces.
	Links []Context
	// Error is the reason of a failure, its class first; "": no failure.
	Error string
}

// Attribute is an attribute of a span: a text, or the value that Type selects. An empty text is
// omitted.
type Attribute struct {
	Key    string
	Type   Type
	Text   string
	Number float64
	Whole  int64
}

// Type selects the field of an Attribute that contains its value.
type Type int

// The types of attributes.
const (
	IsText Type = iota
	IsNumber
	IsWhole
)

// Text returns an attribute with a text.
func Text(key, value string) Attribute { return Attribute{Key: key, Text: value} }

// Whole returns an attribute with an integer.
func Whole(key string, value int64) Attribute {
	return Attribute{Key: key, Type: IsWhole, Whole: value}
}

// Number returns an attribute with a floating-point number.
func Number(key string, value float64) Attribute {
	return Attribute{Key: key, Type: IsNumber, Number: value}
}

// Tracer decides which samples are traced, and passes their spans to a sink. A nil Tracer traces
// nothing.
type Tracer struct {
	below uint64 // traces are sampled whose last 63 bits are less
	sink  func(*Span)
}

// New returns a Tracer that samples a share ratio, from 0 to 1, of the traces that begin in this
// process. sink is called from any goroutine and must not block.
func New(ratio float64, sink func(*Span)) *Tracer {
	t := &Tracer{sink: sink}
	switch {
	case ratio >= 1:
		t.below = 1 << 63
	case ratio > 0:
		t.below = uint64(ratio * (1 << 63))
	}
	return t
}

// Fresh returns the first span of a new sampled trace.
func Fresh() Context { return Context{Trace: newTrace(), Span: newSpan(), Sampled: true} }

// Begin returns the span of a sample with or without a traceparent, and its parent. A trace that
// the trainer has begun is continued only if the trainer records it. For other samples the ratio
// decides, by the trace's ID, so that every process decides in the same way. The result is the zero
// value if the sample is not traced.
func (t *Tracer) Begin(traceparent string) (own Context, parent SpanID) {
	if t == nil {
		return Context{}, SpanID{}
	}
	if traceparent != "" {
		if c, err := Parse(traceparent); err == nil {
			if !c.Sampled {
				return Context{}, SpanID{}
			}
			return c.Child(), c.Span
		}
	}
	own = Fresh()
	if binary.BigEndian.Uint64(own.Trace[8:])>>1 >= t.below {
		return Context{}, SpanID{}
	}
	return own, SpanID{}
}

// End passes a span to the sink.
func (t *Tracer) End(s *Span) { t.sink(s) }

func put(into []byte, v uint64) { binary.BigEndian.PutUint64(into, v) }

// messageBytes bounds what a span says of a failure.
const messageBytes = 512

// Fail sets the reason of a failure: its class, and a message that may be "".
func (s *Span) Fail(class, message string) {
	s.Error = class
	if message != "" {
		s.Error += ": " + message
	}
	if len(s.Error) > messageBytes {
		s.Error = strings.ToValidUTF8(s.Error[:messageBytes], "")
	}
	s.Attributes = append(s.Attributes, Text("error.type", class))
}
