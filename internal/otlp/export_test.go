package otlp

// Encode is encode of a batch by nobody in particular.
var Encode = encode

// QueueSpans is how many spans may wait.
const QueueSpans = queueSpans
