// Package otlp exports spans to an OpenTelemetry collector by OTLP over HTTP.
//
// The life of a span: whatever makes it gives it to the sink of the Tracer, which puts it into a queue of 8,192 places
// and never blocks; a span that finds no place is counted and gone. One goroutine makes batches of up to 512, once a second
// or as soon as one is full, and sends one after the other through internal/outbound, whose rules of addresses,
// retries and breakers hold for a collector as for everything else. A batch that the collector has not taken within
// 10 s, or has refused, is counted and gone. Close sends what is left until its context ends.
//
// The schema is that of OpenTelemetry (go.opentelemetry.io/proto/slim/otlp); docs/adr/0023-traces.md says why its SDK
// is not here.
package otlp
