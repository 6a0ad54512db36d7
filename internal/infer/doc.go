// Package infer is the language that scorers, the pool and the runtime speak
// about models: tensors, one item for a model, a batch of them, what a model
// says about itself, and the ways in which running it can fail. It holds types
// only.
//
// The life of an item: a scorer makes a [Request] of tensors without a batch
// axis and calls the one-method interface it declares itself; the pool puts
// items of equal shape into a [Batch], whose tensors have the batch axis first,
// and hands it to a runner, which answers with tensors that have it too; the
// pool takes each item's rows out again.
package infer
