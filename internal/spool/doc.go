// Package spool keeps on disk what must survive a crash of the gateway: accepted samples without a
// result, results that clients have not confirmed, and the state of prompt groups and runs.
//
// The life of a Spool: Open locks the folder, so that no second process writes there,
// reads the heads of all records of earlier lives, and begins a new segment. Each hands
// out what is kept, which the gateway takes in before it serves. From then on Put writes
// a record and returns when the kernel has it; Later queues a record that nobody waits
// for, which the spool's one goroutine writes, or a Put that comes before it. Close
// writes the rest and gives the folder back.
//
// The folder holds segments: files of about 64 MiB to which records are appended and
// never changed. A record is live until another one ends it: a result ends its sample, a
// Drop what it names, a new epoch everything of the run. Only the oldest segment is ever
// deleted, when nothing in it is live; where most of what is on disk is dead, the live
// records of the oldest are first written again at the end, and if there is only one
// segment, another is begun for them. So a Drop always outlives the record it is for, and
// nothing comes back to life. On a full disk Put refuses samples and Trouble says why, until
// there is room again (reserve.go).
//
// What holds and what does not: bytes given to write(2) survive the death of the process,
// by whatever signal. Those of a sample survive that of the machine with FsyncGroup: Put
// then waits for an fsync, which costs a disk milliseconds and is shared by all who wait
// (sync.go). Without it nothing is synced; a sample that is lost with the machine is still
// with its client. A record that a killed process wrote half, and one whose bytes have
// changed, is skipped, counted and logged; it never keeps a gateway from starting.
//
// Memory: about 200 bytes for each live record, whatever its size.
package spool
