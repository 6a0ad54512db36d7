package tracing

import (
	"encoding/binary"
	"strings"
	"time"
)

// Kind is the part that a span has in a question and its answer; the numbers are those of OTLP.
type Kind int

// The kinds that there are here: work within a process, and both sides of a question.
const (
	Internal Kind = 1
	Server   Kind = 2
	Client   Kind = 3
)

// Span is what happened between two moments. It does not change once it was handed to a sink.
type Span struct {
	Context

	Parent     SpanID // zero: it is the first of its trace
	Name       string
	Kind       Kind
	Start, End time.Time
	Attributes []Attribute
	// Links are other traces that the span has to do with.
	Links []Context
	// Error says why what the span describes failed, its class first; "": it did not.
	Error string
}

// Attribute is something known of a span: a text, or what Type says. An empty text says nothing.
type Attribute struct {
	Key    string
	Type   Type
	Text   string
	Number float64
	Whole  int64
}

// Type is the field of an Attribute that has its value.
type Type int

// The types of attributes.
const (
	IsText Type = iota
	IsNumber
	IsWhole
)

// Text is an attribute with a text.
func Text(key, value string) Attribute { return Attribute{Key: key, Text: value} }

// Whole is an attribute with a whole number.
func Whole(key string, value int64) Attribute {
	return Attribute{Key: key, Type: IsWhole, Whole: value}
}

// Number is an attribute with a number.
func Number(key string, value float64) Attribute {
	return Attribute{Key: key, Type: IsNumber, Number: value}
}

// Tracer decides which samples are traced, and hands their spans on. A nil Tracer traces nothing.
type Tracer struct {
	below uint64 // traces are sampled whose last 63 bits are less
	sink  func(*Span)
}

// New makes a Tracer of a share of the traces that begin here, from 0 to 1. The sink takes spans from
// any goroutine and must not block.
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

// Fresh is the first span of a trace that is sampled.
func Fresh() Context { return Context{Trace: newTrace(), Span: newSpan(), Sampled: true} }

// Begin is the span of a sample that came with a traceparent, or without one. A trace that its trainer
// has begun is followed if the trainer records it, and only then; of the others the ratio decides, by the trace's
// name, so that every process decides alike. A context that is not sampled is the zero value.
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

// End hands a span on.
func (t *Tracer) End(s *Span) { t.sink(s) }

func put(into []byte, v uint64) { binary.BigEndian.PutUint64(into, v) }

// messageBytes bounds what a span says of a failure.
const messageBytes = 512

// Fail says why what the span describes failed: by the class of the failure, and a message that may be "".
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
