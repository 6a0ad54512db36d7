// Package tracing describes the life of a sample as OpenTelemetry spans, in a trace of the trainer
// or in a new trace.
//
// The gateway calls Tracer.Begin once for each sample, with the W3C trace context of the sample.
// The returned context is sent in tickets to workers, also of other processes; Attempt returns the
// same span for a worker's attempt on both sides without another message. Spans are made after the
// work that they describe, from recorded times, and passed to the Tracer's sink, which must not
// block. A nil Tracer and a Context without a trace do nothing and cost no more than a comparison.
package tracing
