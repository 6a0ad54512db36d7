// Package infer defines the interface between scorers, the pool and the runtime of models: tensors,
// items and batches, descriptions of models, and errors of inference. It contains only types and
// functions of these types.
//
// A scorer makes a [Request] of tensors without a batch axis and passes it to a [Net]. The pool
// joins items of equal shape into a [Batch], whose tensors have the batch axis first. A runner
// returns output tensors with a batch axis, and the pool splits them into the rows of the items.
package infer
