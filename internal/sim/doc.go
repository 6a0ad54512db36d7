// Package sim computes the best possible time of a step: the time that an ideal reward loop would
// have needed for the same rollouts and rewards.
//
// The inputs are the times at which the samples were generated and the durations of their scoring,
// which package loop/trace takes from the recorded trace of a step. From these, package sim
// computes two schedules on the same number of servers, an ideal pull queue (IdealQueue) and
// scoring after the rollout (BatchAfterRollout), and F*, a finish time that no schedule can beat,
// even with knowledge of the future (LowerBound).
//
// Steps that have not been run are simulated in virtual time, event by event. Dispatch simulates
// one step on a pool whose servers have speeds, stragglers and failures, under a policy. Trainer
// simulates several steps of a training loop with such a pool, in six modes of overlap, and
// TrainerBound is a time that no pool can beat there. One of the policies, PolicyRandomBlind, is
// the dispatch of verl, for comparison.
//
// A server is one place where one sample is scored at a time; a worker with c places counts as c
// servers. Unless speeds are set, all servers have the same speed.
//
// All functions are pure functions, without a clock, goroutines or state.
package sim
