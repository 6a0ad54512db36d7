// Package infer defines the interface between scorers, the pool and the runtime of models: tensors,
// items and batches, descriptions of models, and errors of inference. It holds types only.
//
// The life of an item: a scorer makes a [Request] of tensors without a batch
// axis and calls the one-method interface it declares itself; the pool puts
// items of equal shape into a [Batch], whose tensors have the batch axis first,
// and hands it to a runner, which answers with tensors that have it too; the
// pool takes each item's rows out again.
package infer
