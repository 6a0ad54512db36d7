// Package rewardloop embeds the reward server in a Go program, together with scorers that the
// program registers.
//
// Such a program calls RunChild first in main. New then reads the configuration and builds the
// rewards, including those of the program's own scorers. Run listens, scores the samples of
// clients, and returns when its context has ended and every sample has its result.
//
// A program that needs no scorers of its own in Go is `rewardloop serve`. A sample passes the
// packages client, wire, loop, queue, workers, rewards and pool, whose package comments describe
// its path (docs/architecture.md).
package rewardloop
