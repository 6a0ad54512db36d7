package otlp

import (
	"cmp"
	"strings"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	traces "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/rewardloop/rewardloop/internal/tracing"
)

// Process describes the process that sends the spans.
type Process struct {
	// Instance is the name of the process, unique within the service; Host is its machine.
	Instance, Host, Version string
}

// scopeName names who makes the spans.
const scopeName = "github.com/rewardloop/rewardloop"

func describe(c *Config, p Process) *resource.Resource {
	r := &resource.Resource{}
	for _, a := range []tracing.Attribute{
		tracing.Text("service.name", cmp.Or(c.ServiceName, "rewardloop")), tracing.Text("service.version", p.Version),
		tracing.Text("service.instance.id", p.Instance), tracing.Text("host.name", p.Host),
	} {
		r.Attributes = add(r.Attributes, a)
	}
	return r
}

// add adds an attribute, unless it says nothing.
func add(list []*common.KeyValue, a tracing.Attribute) []*common.KeyValue {
	v := &common.AnyValue{}
	switch a.Type {
	case tracing.IsNumber:
		v.Value = &common.AnyValue_DoubleValue{DoubleValue: a.Number}
	case tracing.IsWhole:
		v.Value = &common.AnyValue_IntValue{IntValue: a.Whole}
	default:
		if a.Text == "" {
			return list
		}
		v.Value = &common.AnyValue_StringValue{StringValue: text(a.Text)}
	}
	return append(list, &common.KeyValue{Key: a.Key, Value: v})
}

// text is what protobuf takes: a failure's message may quote anything.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// sampledFlag is that of W3C's trace flags.
const sampledFlag = 1

func span(s *tracing.Span) *traces.Span {
	out := &traces.Span{
		TraceId: s.Trace[:], SpanId: s.Span[:], Name: text(s.Name), Kind: traces.Span_SpanKind(s.Kind), Flags: sampledFlag,
		StartTimeUnixNano: uint64(s.Start.UnixNano()), EndTimeUnixNano: uint64(max(s.Start.UnixNano(), s.End.UnixNano())),
		Attributes: make([]*common.KeyValue, 0, len(s.Attributes)),
	}
	if s.Parent != (tracing.SpanID{}) {
		out.ParentSpanId = s.Parent[:]
	}
	for _, a := range s.Attributes {
		out.Attributes = add(out.Attributes, a)
	}
	for _, l := range s.Links {
		out.Links = append(out.Links, &traces.Span_Link{TraceId: l.Trace[:], SpanId: l.Span[:], Flags: sampledFlag})
	}
	if s.Error != "" {
		out.Status = &traces.Status{Code: traces.Status_STATUS_CODE_ERROR, Message: text(s.Error)}
	}
	return out
}

// encode is the body of a request.
func encode(of *resource.Resource, version string, batch []*tracing.Span) ([]byte, error) {
	list := make([]*traces.Span, len(batch))
	for i, s := range batch {
		list[i] = span(s)
	}
	return proto.Marshal(&collector.ExportTraceServiceRequest{ResourceSpans: []*traces.ResourceSpans{{
		Resource: of, ScopeSpans: []*traces.ScopeSpans{{Scope: &common.InstrumentationScope{Name: scopeName, Version: version}, Spans: list}},
	}}})
}

// rejected is how many spans of a batch an answer refuses; 0 where it says nothing.
func rejected(answer []byte) int64 {
	var r collector.ExportTraceServiceResponse
	if proto.Unmarshal(answer, &r) != nil {
		return 0
	}
	return max(r.GetPartialSuccess().GetRejectedSpans(), 0)
}
