// Package dispatch selects the next sample and the workers that may have it: a queue for each
// profile, the capacity of live workers, the speed of each worker, and the dispatch policies.
//
// Profiles are isolated from each other (bulkheads): each profile has its own queue, places and
// tickets. The order of the samples within a profile is the same for every policy: runs share the
// places by weight, within a run the step that closes first goes first, and within a step the
// sample that came first. The policies differ in which worker may have the next sample, and
// therefore in whether the sample waits for another worker. Each policy has its own file and test;
// the function all in policy.go lists the policies.
//
// The package is passive: it has no goroutines, clocks or I/O, and its state is guarded by the
// gateway's mutex.
package dispatch
