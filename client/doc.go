// Package client streams finished samples to a reward loop and returns their results; generators
// written in Go import it.
//
// The life of a Client: Dial connects and says hello. Submit encodes a sample once,
// without copying its pixels, and returns a Future; it blocks only while the
// server's credit is used up. The client keeps the sample until its result has
// come. When the connection is lost it dials again, with growing pauses, resumes
// its session and sends again what it has no result for; if the server has
// forgotten the session (it was restarted), all of it. Each Future resolves once.
// Cancel takes samples back, wherever they are; Close gives up what is not answered.
//
// A server that is being stopped says that it is draining. The client sends nothing more
// to it, waits for what the server has of its, and dials again, until there is one that
// takes samples; a sample that was refused for that reason is sent there. So a rolling
// restart costs time and no sample.
//
// With several URLs the client goes to the next gateway when its own is gone, silent for
// 3 s, or draining: within 5 s it sends there what has no result. That gateway knows nothing
// of the former one, so that what was in flight there is scored again. A gateway that has
// answered and whose connection ends is dialled again first: it may have been the network.
// Clients of one run that share steps give the same URLs in the same order, so that they
// meet again.
//
// Who trains on a whole step, or on mini-batches of it, declares it and asks for its
// rewards: Declare, then Chunks or Rewards. The gateway assembles prompt groups and hands
// each out once; a chunk keeps its number, so that a question whose connection was lost is
// asked again and has the same rows. The record of a step is the gateway's: at another one,
// or at one that was started anew, a step that the former had heard of is lost (ErrStepLost)
// until it is declared and submitted again, while every Future still gets its result. A step
// that no gateway had heard of is declared by the client.
//
// A Client has two goroutines while connected: one reads, one sends; both end with
// Close. Pixels given to Submit must not change until the Future has resolved.
package client
