// Package spool stores on disk what must survive a crash of the gateway: accepted samples without a
// result, results that clients have not confirmed, and the state of prompt groups and runs.
//
// Open locks the folder, so that no second process writes to it, reads the heads of all records of
// earlier processes, and begins a new segment. Each returns the stored records, which the gateway
// reads before it serves requests. From then on, Put writes a record and returns when the kernel
// has it; Later queues a record that nobody waits for, which is written by the spool's only
// goroutine, or by the next Put. Close writes the remaining records and unlocks the folder.
//
// The folder contains segments: files of about 64 MiB to which records are appended and never
// changed. A record is live until another record ends it: a result ends its sample, a Drop ends the
// record that it identifies, and a new epoch ends all records of the run. Only the oldest segment
// is ever deleted, when it has no live record. If most of the data on disk is dead, the live
// records of the oldest segment are first written again at the end; if there is only one segment,
// another one is begun for them. Therefore a Drop always outlives its record, and no record becomes
// live again. On a full disk, Put refuses samples and Trouble returns the reason, until there is
// space again (reserve.go).
//
// Guarantees: bytes passed to write(2) survive the end of the process, by any signal. With
// FsyncGroup, samples also survive a crash of the machine: Put then waits for an fsync, which takes
// a disk milliseconds and is shared by all waiting callers (sync.go). Without FsyncGroup nothing is
// synced; the client still has a sample that is lost with the machine. A half-written record of a
// killed process, and a record whose bytes have changed, is skipped, counted and logged, and never
// prevents a gateway from starting.
//
// Memory: about 200 bytes for each live record, regardless of its size.
package spool
