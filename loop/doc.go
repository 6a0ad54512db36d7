// Package loop is the gateway: it accepts finished samples, orders them, tracks samples in flight,
// and answers each sample once.
//
// The life of a sample, and who owns it at each step:
//
//  1. The client owns it until the gateway says ack, and keeps its bytes until the
//     result: if the gateway dies, the client sends it again to the next one.
//  2. gateway.Receive reads the header, books the bytes against the connection's
//     credit, reads the body into one buffer, and core.admit makes an entry of it. A
//     durable gateway has written it to its spool before (durable.go).
//     From here the entry owns the frame: one reference to a counted buffer.
//  3. The entry waits in the queue of its profile (dispatch.Profile). The dispatcher
//     (Manager.dispatch, one goroutine) publishes a ticket when there is room for one: runs share places
//     by weight, within a run the step that closes first goes first. Which worker may
//     have it is dispatch.Policy's.
//  4. A worker claims the ticket: core.claim lends it a reference to the frame of
//     its own. The worker owns the attempt; the entry still owns the sample.
//  5. Manager.Finish takes the worker's answer. The first one that counts wins and
//     settles the entry; a later one is counted and dropped. A failure that the worker is
//     to blame for sends the entry back to 3, for another worker (breaker.go).
//     A sample whose reward needs its whole group waits for its group instead: its frame
//     stays, its place is free, and when the last member has come that far the group
//     gets an entry of its own, which goes from 3 to 5 with all frames and settles
//     all members (gather.go).
//     One that runs long at the end of its step may have a second ticket meanwhile, and
//     a second worker; whoever is first settles it, and the other is told to stop
//     (dispatch.go).
//  6. A settled entry whose reward waits for its prompt group is held until the
//     group closes: by its size, or at the deadline of its first member.
//  7. core.finalise makes the result final, exactly once, and hands it to the
//     owner: a client's stream.Session, which numbers it and keeps it until the client confirms it,
//     or a Future. The frame's reference is given back when the entry settles; the
//     buffer is free when the last worker's goroutine has given back its own, and
//     only then does the client get new credit for it.
//
// A durable gateway that was killed takes in what its last life has left in the spool:
// Manager.Restore makes entries of samples without a result, at 3, owned by away until
// their clients send them again.
//
// An entry that finds no worker, no answer or no group in time is ended by the
// clock (core.tick), with an outcome that says so. Nobody waits for ever.
//
// core is the state machine, without goroutines, clocks or I/O; Manager gives it a
// mutex, a dispatcher and a clock; package loop/stream gives it websockets. The
// simulation tests run the same core under testing/synctest with a queue in
// memory.
//
// Where what is, in the order in which a sample meets it; a Manager's method stands
// before the core's that it calls:
//
//	config, queue, errors       what it is told, what it needs, what its errors wrap
//	manager, dispatcher         start, drain, stop; the one goroutine; clock: what is due when
//	attach                      what a client's messages ask for; its session and its epoch
//	submit                      a sample from inside the process
//	flow                        memory that is free again, and memory that is stuck
//	core, run, entry            the state machine, a run, a sample
//	admit                       taking samples in
//	transitions                 the states of a sample and of an attempt, and the one way between
//	dispatch, backup            what package dispatch is asked
//	waits                       samples that wait for an engine or a service that is down
//	breaker, unserved           workers that fail a profile, by their own word or by
//	                            comparison; profiles without a worker
//	tickets, claim, attempts    into the queue, out to a worker, who has it
//	finish, settle, finalise    an answer, the end of the scoring, the one final result
//	withdraw, loss              taken back by a client, a restart or a stop; what was lost
//	groups, gather              prompt groups: their statistics, those scored as a whole
//	steps                       what clients say and ask of steps, what these mean to the rest
//	memory, durable             remembered results; what outlives the process
//	state, examine, metrics     what can be seen of it: API, samples for people, Prometheus
//
// Packages below it are passive: a Manager calls them under its mutex, and does what they
// return. dispatch has the queues and the capacity of profiles, step is the book of steps, stats are rewards over time, trace is a step's spans
// and report.
package loop
