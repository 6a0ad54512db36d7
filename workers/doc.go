// Package workers scores samples: a Worker takes tickets for its free places, claims each payload,
// runs the reward's manager, returns the result and then releases the lease.
//
// One goroutine, job.score, handles a sample on a worker: it claims the payload, runs the manager,
// hands over the result, waits for scorers that exceeded their deadline, and frees the place. The
// ticket of a prompt group is handled in the same way, with the frames of all its members. Besides
// the jobs, each profile has a puller, the only goroutine that takes tickets from the profile's
// queue, and the heartbeat extends leases and announces the worker. Profiles are isolated from each
// other: each profile has a bay with its own places (rewards.Places).
//
// A scorer that ignores its context is abandoned: the sample is answered and its lease ends, but
// its place and the reference to its bytes stay in use until the scorer returns. With more than
// MaxAbandoned such scorers of a profile, the worker takes no more samples of that profile.
//
// A failure does not change the state of the worker: the answer contains the cause, and the
// gateway, which has the answers of all workers, decides whether this worker gets more samples of
// the profile.
//
// A worker that reaches no gateway hands its tickets back and pauses, longer each time, so that it
// does not take samples that others could score. The worker announces itself as broken until it has
// received a payload again.
//
// Drain takes no more samples and waits for the samples of the worker. Stop cancels the samples'
// contexts and hands their tickets back.
package workers
