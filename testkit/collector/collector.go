// Package collector is an OpenTelemetry collector for tests. It receives traces by OTLP over HTTP,
// and misbehaves on demand.
package collector

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	requests "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	traces "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a decoded span. IDs are hexadecimal.
type Span struct {
	Trace, ID, Parent string
	Name              string
	Service, Instance string
	Kind              int32
	Start, End        time.Time
	Attributes        map[string]any
	Links             []string // IDs of traces
	Failed            bool
	Message           string
}

// Collector receives spans.
type Collector struct {
	URL string

	t      testing.TB
	mu     sync.Mutex
	spans  []Span        // guarded by mu
	header http.Header   // of the last request; guarded by mu
	asked  int           // guarded by mu
	news   chan struct{} // closed and replaced with each request; guarded by mu
	answer http.HandlerFunc
}

// New starts a collector. If answer is not nil, it handles all requests, and no spans are kept.
func New(t testing.TB, answer http.HandlerFunc) *Collector {
	t.Helper()
	c := &Collector{t: t, news: make(chan struct{}), answer: answer}
	s := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(s.Close)
	c.URL = s.URL
	return c
}

// Hanging returns a handler that does not answer until the client disconnects or the test ends.
func Hanging(t testing.TB) http.HandlerFunc {
	t.Helper()
	ctx := t.Context()
	return func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // it may be cut off
		select {
		case <-r.Context().Done():
		case <-ctx.Done():
		}
	}
}

// Answering returns a handler that answers with the given status.
func Answering(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var got []Span
	if err == nil && c.answer == nil {
		assert.Equal(c.t, "/v1/traces", r.URL.Path)
		assert.Equal(c.t, "application/x-protobuf", r.Header.Get("Content-Type"))
		got = c.decode(body)
	}
	c.mu.Lock()
	c.spans = append(c.spans, got...)
	c.header, c.asked = r.Header, c.asked+1
	close(c.news)
	c.news = make(chan struct{})
	c.mu.Unlock()
	if c.answer != nil {
		c.answer(w, r)
	}
}

func (c *Collector) decode(body []byte) (out []Span) {
	var req requests.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		c.t.Errorf("a request that is none: %v", err)
		return nil
	}
	for _, r := range req.GetResourceSpans() {
		of := attributes(r.GetResource().GetAttributes())
		for _, scope := range r.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				service, _ := of["service.name"].(string)
				instance, _ := of["service.instance.id"].(string)
				span := Span{
					Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
					Name: s.GetName(), Kind: int32(s.GetKind()), Service: service, Instance: instance,
					Start: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())), //nolint:gosec // a time
					Attributes: attributes(s.GetAttributes()), Failed: s.GetStatus().GetCode() == traces.Status_STATUS_CODE_ERROR, Message: s.GetStatus().GetMessage(),
				}
				for _, l := range s.GetLinks() {
					span.Links = append(span.Links, hex.EncodeToString(l.GetTraceId()))
				}
				out = append(out, span)
			}
		}
	}
	return out
}

func attributes(list []*common.KeyValue) map[string]any {
	out := map[string]any{}
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[a.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			out[a.GetKey()] = v.IntValue
		case *common.AnyValue_DoubleValue:
			out[a.GetKey()] = v.DoubleValue
		}
	}
	return out
}

// Await waits until enough returns true for the received spans, and returns them in the order of
// their start. It fails the test after a minute.
func (c *Collector) Await(enough func([]Span) bool) []Span {
	c.t.Helper()
	late := time.After(time.Minute)
	for {
		c.mu.Lock()
		spans, news := slices.Clone(c.spans), c.news
		c.mu.Unlock()
		if enough(spans) {
			slices.SortStableFunc(spans, func(a, b Span) int { return a.Start.Compare(b.Start) })
			return spans
		}
		select {
		case <-news:
		case <-late:
			require.FailNow(c.t, "the spans did not come within a minute", "%+v", spans)
		}
	}
}

// Asked waits for n requests, and returns the headers of the last request.
func (c *Collector) Asked(n int) http.Header {
	c.t.Helper()
	var header http.Header
	c.Await(func([]Span) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		header = c.header
		return c.asked >= n
	})
	return header
}

// Named returns the spans with the given name.
func Named(spans []Span, name string) []Span {
	return slices.DeleteFunc(slices.Clone(spans), func(s Span) bool { return s.Name != name })
}

// Below returns the direct children of s.
func Below(spans []Span, s Span) []Span {
	return slices.DeleteFunc(slices.Clone(spans), func(x Span) bool { return x.Trace != s.Trace || x.Parent != s.ID })
}
