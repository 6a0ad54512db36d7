// Package fair shares executors (sessions of a device, child processes, CPUs) among the
// tenants that wait for them, in proportion to their weights. A tenant is a training run
// under one reward profile.
//
// The method is start-time fair queueing: P. Goyal, H. M. Vin, H. Cheng, "Start-Time Fair
// Queueing: A Scheduling Algorithm for Integrated Services Packet Switching Networks",
// SIGCOMM 1996. Each tenant has an account: the executor time it has had, divided by its
// weight. Whose account is lowest is served next. A tenant that comes, or comes back, begins
// at the account of the tenant that was served last, so that idle time is worth nothing.
// The paper knows a packet's length in advance. The time of a call is known when it has
// ended: until then the account is charged an estimate and the time the call has run, so
// that a tenant whose calls hang gets no more than its share of the executors.
//
// A [Book] has the accounts of one resource, a [Line] the tenants that wait there for one
// thing, in the order of their turns. Both are passive: their owner has the lock and the
// clock. A [Queue] is a Book and a Line for owners with calls that wait one by one, first
// in, first out within a tenant; a [Gate] is a Queue with a number of executors and a lock of
// its own.
//
// An operation costs O(log n) for n tenants that wait. An account is forgotten when its
// tenant has nothing that waits or runs and no more debt; all are when nobody has.
package fair
