// Package dispatch selects the next sample and the workers that may have it: a queue for each
// profile, the capacity of live workers, the speed of each worker, and the dispatch policies.
//
// Profiles are bulkheads: each has its queue, its places and its tickets, and takes nothing
// from another. Within a profile the order of the samples is the same under every policy:
// runs share the places by weight, within a run the step that closes first goes first, within a step the sample that
// came first. What differs is which worker may have the one that is next, and so whether it
// waits for another worker. A policy has a file and a test of its own; Policies lists them.
//
// All of it is passive: guarded by the gateway's mutex, without goroutines, clocks or I/O.
package dispatch
