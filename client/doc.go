// Package client is what a generator written in Go imports: it streams finished
// samples to a reward loop and hands their results out.
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
// Who trains on a whole step, or on mini-batches of it, declares it and asks for its
// rewards: Declare, then Chunks or Rewards. The gateway assembles prompt groups and hands
// each out once; a chunk keeps its number, so that a question whose connection was lost is
// asked again and has the same rows. The record of a step is the gateway's: with it the
// step is lost (ErrStepLost), while every Future still gets its result.
//
// A Client has two goroutines while connected: one reads, one sends; both end with
// Close. Pixels given to Submit must not change until the Future has resolved.
package client
