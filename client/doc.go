// Package client streams finished samples to a reward loop and returns their results. The package
// is for sample generators written in Go.
//
// Dial connects to a server and opens a session. Submit encodes a sample once, without copying its
// pixels, and returns a Future; Submit blocks only while too many samples wait for the server's
// credit. The client keeps each sample until its result has arrived. After a lost connection the
// client dials again, with growing pauses, resumes its session, and sends the samples without a
// result again. If the server has no record of the session, for example because it was restarted,
// these samples are new for the server. Each Future resolves once. Cancel cancels samples, whether
// they have been sent or not; Close gives up all samples without a result.
//
// A server that is being stopped announces that it is draining. The client then sends nothing more
// to this server, waits for the results of the samples that the server has, and dials again until a
// server accepts samples. A sample that was refused because of the draining is sent to that server.
// A rolling restart therefore costs time but no sample.
//
// With several URLs the client connects to the next gateway when its own gateway is gone, silent
// for 3 s, or draining: within 5 s it sends all samples without a result to the next gateway. That
// gateway has no record of the former one, so samples that were in flight there are scored again.
// If the connection to a gateway that has returned results ends, the client first dials the same
// gateway again, because the cause may be the network. Clients of one run that share steps must
// have the same URLs in the same order, so that they connect to the same gateway again.
//
// A trainer that needs a whole step, or mini-batches of it, declares the step and fetches its
// rewards: Declare, then Chunks or Rewards. The gateway assembles prompt groups and hands out each
// group once. A chunk keeps its number, so a request that is repeated after a lost connection
// returns the same rows. The record of a step exists only at its gateway. At another gateway, or at
// a gateway that was restarted, a step that the former one had a record of is lost (ErrStepLost)
// until it is declared and submitted again; every Future still gets its result. The client itself
// declares a step again that no gateway has a record of.
//
// A connected Client has two goroutines, a reader and a sender; both end with Close. Pixels given
// to Submit must not change until the Future has resolved.
package client
