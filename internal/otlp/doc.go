// Package otlp exports spans to an OpenTelemetry collector by OTLP over HTTP.
//
// The life of a span: the code that makes a span passes it to the sink of the Tracer, which puts
// the span into a queue of 8,192 places and never blocks; a span without a place is counted and
// dropped. One goroutine makes batches of up to 512 spans, once a second or as soon as a batch is
// full, and sends one batch after another through internal/outbound, whose rules for addresses,
// retries and breakers also apply to the collector. A batch that the collector has not accepted
// within 10 s, or has refused, is counted and dropped. Close sends the remaining spans until its
// context ends.
//
// The schema is that of OpenTelemetry (go.opentelemetry.io/proto/slim/otlp);
// docs/adr/0023-traces.md explains why its SDK is not used.
package otlp
