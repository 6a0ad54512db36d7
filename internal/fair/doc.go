// Package fair shares executors (sessions of a device, child processes, CPUs) among waiting
// tenants, in proportion to their weights. A tenant is a training run with a reward profile.
//
// The method is start-time fair queueing: P. Goyal, H. M. Vin, H. Cheng, "Start-Time Fair Queueing:
// A Scheduling Algorithm for Integrated Services Packet Switching Networks", SIGCOMM 1996. Each
// tenant has an account: the executor time that it has used, divided by its weight. The tenant with
// the lowest account is served next. A tenant that arrives or returns begins at the account of the
// tenant that was served last, so that idle time gives no credit. The paper assumes that a packet's
// length is known in advance. The time of a call is known only at its end: until then the account
// is charged an estimate and the elapsed time, so that a tenant whose calls hang gets no more than
// its share of the executors.
//
// A [Book] contains the accounts of one resource, and a [Line] the tenants that wait for one thing,
// in the order of their turns. Both are passive: their owner has the lock and the clock. A [Queue]
// is a Book and a Line for owners whose calls wait one by one, first in first out within a tenant.
// A [Gate] is a Queue with a number of executors and its own lock.
//
// An operation costs O(log n) for n waiting tenants. An account is deleted when its tenant has no
// waiting or running calls and no debt; all accounts are deleted when no tenant has calls.
package fair
