// Package rewardloop embeds the reward server in a Go program, together with scorers written in Go
// that the program registers.
//
// The life of such a program: main calls RunChild; New reads the configuration
// and builds the rewards, its own scorers among them; Run listens, scores what
// clients send, and ends with its context, when every sample is answered.
//
// A program that needs no scorers of its own in Go is `rewardloop serve`. The
// path of a sample is told in the packages it passes: client, wire, loop, queue,
// workers, rewards, pool (docs/architecture.md).
package rewardloop
