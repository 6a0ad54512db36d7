// Package loop implements the gateway: it accepts finished samples, orders them, tracks samples in
// flight, and answers each sample once.
//
// The life of a sample, and its owner at each step:
//
//  1. The client owns the sample until the gateway acknowledges it, and keeps the sample's bytes
//     until the result: if the gateway ends, the client sends the sample again to the next gateway.
//  2. gateway.Receive reads the header, books the bytes against the connection's credit, and reads
//     the body into one buffer. A durable gateway then writes the sample to its spool (durable.go).
//     core.admit creates an entry for the sample. From here on the entry owns the frame: one
//     reference to a reference-counted buffer.
//  3. The entry waits in the queue of its profile (dispatch.Profile). The dispatcher
//     (Manager.dispatch, one goroutine) publishes a ticket when there is room for one: runs share
//     the places by weight, and within a run the step that closes first goes first. The dispatch
//     policy selects the workers that may have the ticket.
//  4. A worker claims the ticket: core.claim lends the worker a frame reference of its own. The
//     worker owns the attempt; the entry still owns the sample.
//  5. Manager.Finish accepts the worker's answer. The first valid answer wins and settles the
//     entry; later answers are counted and dropped. A failure caused by the worker returns the
//     entry to step 3, for another worker (breaker.go).
//     A sample whose reward needs its whole group waits for the group instead: its frame stays in
//     memory and its place is free. When the last member has reached this point, the group gets an
//     entry of its own, which passes steps 3 to 5 with the frames of all members and settles all
//     members (gather.go).
//     A sample that runs long at the end of its step may get a second ticket and a second worker;
//     the first answer settles the sample, and the other attempt is revoked (dispatch.go).
//  6. A settled entry whose reward depends on statistics of its prompt group is held until the
//     group closes: when the group is complete, or at the deadline of its first member.
//  7. core.finalise makes the result final, exactly once, and hands it to the owner: a client's
//     stream.Session, which numbers the result and keeps it until the client confirms it, or a
//     Future. The entry releases its frame reference when it settles. The buffer is free when the
//     last worker's goroutine has released its reference; only then does the client get new credit
//     for these bytes.
//
// After a crash, a durable gateway reads the records in its spool: Manager.Restore creates entries
// for samples without a result, at step 3, with the owner away until their clients send them again.
//
// The clock (core.tick) ends an entry that gets no worker, no answer or no group in time, with an
// outcome that contains the reason. No sample waits forever.
//
// core is the state machine, without goroutines, clocks or I/O. Manager adds a mutex, a dispatcher
// and a clock; package loop/stream adds the websocket protocol. The simulation tests run the same
// core under testing/synctest with a queue in memory.
//
// The files, in the order in which a sample passes them; each Manager method precedes the core
// method that it calls:
//
//	config, errors              settings and interfaces; errors that callers can test for
//	manager, dispatcher, clock  start, drain, stop; the only goroutine; timers
//	attach, messages            sessions and epochs; clients' control messages
//	submit                      a sample from inside the process
//	core, state, entry          the state machine, a run, a sample
//	admit                       accepting samples
//	transitions                 all state changes of samples and attempts
//	dispatch                    what package dispatch needs of a sample
//	waits                       samples that wait for an engine or a service that is down
//	breaker, unserved, progress workers that fail a profile, by their own answers or by
//	                            comparison; profiles without a worker or without results
//	tickets, claim, attempts    from the queue to a worker; the workers that have a sample
//	finish, settle, finalise    an answer, the end of the scoring, the only final result
//	withdraw, reassign          samples that end unscored; lost workers and lost tickets
//	groups, gather              prompt groups: their statistics, and rewards of whole groups
//	steps                       clients' messages and requests about steps
//	memory, durable             remembered results and frames; what survives the process
//	state, record, traced,      what the process reports: the API, recorders, OpenTelemetry,
//	metrics                     Prometheus
//
// The subpackages are passive: a Manager calls them while holding its mutex, and acts on their
// results. Package dispatch has the queues and the capacity of profiles, step the book of steps,
// stats the rewards over time, and trace the spans and the report of a step.
package loop
