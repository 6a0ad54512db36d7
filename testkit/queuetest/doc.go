// Package queuetest contains the contract of a queue as tests: everything that loop and workers
// rely on, for any implementation. Package queue is tested in real time, and package memqueue in
// the fake time of testing/synctest.
//
// The life of a case: Run starts the case as a subtest and calls the caller to set up a queue. The
// case gets the queue as a Harness, publishes tickets like a gateway, and takes them like workers.
// No case waits longer than a few leases.
package queuetest
