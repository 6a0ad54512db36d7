// Package dispatch decides which sample is next and which workers may have it: the queues in
// which accepted samples wait, who is there to score them, how fast each worker is, and the
// policies that choose.
//
// The order of the samples is the same under every policy: runs share the workers' time by
// weight, within a run the step that closes first goes first, within a step the sample that
// came first. What differs is which worker may have the one that is next, and so whether it
// waits for another worker. A policy has a file and a test of its own; Policies lists them.
//
// All of it is passive: guarded by the gateway's mutex, without goroutines, clocks or I/O.
package dispatch
