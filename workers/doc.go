// Package workers scores samples: a Worker takes tickets for its free places, claims each payload,
// runs the reward's manager, returns the result and then releases the lease.
//
// The life of a sample on a worker is one goroutine, job.score, read from top to
// bottom: claim, run, hand over, wait for scorers that overran, free the place.
// The ticket of a prompt group is the same with the frames of all its members.
// Beside the jobs there are a puller for each profile, the only one that takes tickets from
// its queue, and the heartbeat, which extends leases and announces the worker. Profiles are
// bulkheads: each has a bay with places of its own (rewards.Places).
//
// A scorer that ignores its context is abandoned: the sample is answered, its lease
// ends, but its place and the reference to its bytes stay taken until the scorer
// returns. More than MaxAbandoned of a profile end its samples there.
//
// A failure changes nothing here: the answer carries the blame, and the gateway, which
// sees all workers, decides whether this one gets more samples of that profile.
//
// A worker that reaches no gateway gives its tickets back, and rests, longer each time,
// so that it does not draw what others could score: to the gateways it counts as broken
// until it has a payload again.
//
// Stopping has two words: Drain takes nothing more and waits for what it has; Stop
// ends the samples' contexts and gives their tickets back.
package workers
