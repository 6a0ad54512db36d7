// Package rewardloop is the root of a reward server for people who train
// diffusion and multimodal models with reinforcement learning.
//
// It holds no code of its own. The path of a sample is told in the packages
// it passes: client, wire, loop, queue, workers, rewards, pool. The tests
// here hold the whole tree to its picture: which package may import which,
// where cgo and the large third-party modules may live, and how make behaves.
package rewardloop
