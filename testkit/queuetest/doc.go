// Package queuetest is the contract of a queue as tests: what loop and workers
// rely on, whatever carries the tickets. Package queue is held to it in real time,
// package memqueue in the fake time of testing/synctest.
//
// The life of a case: Run makes it a subtest and asks the caller to set a queue
// up; the case gets it as a Harness, publishes tickets as a gateway would, and takes
// them as workers would. No case waits longer than a few leases.
package queuetest
