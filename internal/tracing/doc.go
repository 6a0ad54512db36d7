// Package tracing describes the life of a sample as OpenTelemetry spans, in a trace of the trainer
// or in one that begins here.
//
// The life of a trace: the gateway asks its Tracer once for each sample (Begin), with the W3C trace
// context that came with it. The context that it is given travels in tickets to workers, also of
// other processes; Attempt tells both sides the same span for a worker's attempt without another
// message. Spans are made when what they describe is over, from times that are known anyway, and
// handed to the Tracer's sink, which must not block. A nil Tracer, and a Context without a trace,
// are nothing: neither costs more than a comparison.
package tracing
