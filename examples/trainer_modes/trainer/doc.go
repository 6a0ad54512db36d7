// Package trainer implements the loop of a trainer without a model: a toy policy learns from the
// rewards of a running reward loop, in each of the six ways in which a trainer can arrange its step
// around the rewards ([Mode]).
//
// The life of a step: its samples are declared. The rollout draws each sample from the policy at
// its time, and submits it at once (the streaming modes) or with all others at the end of the
// rollout. The log-probabilities follow, for which the trainer only sleeps. Then the trainer waits
// for all rewards, or (the pipeline modes) for the whole prompt groups of a mini-batch. For each
// mini-batch it computes advantages within each group, and updates the policy. Validation and
// weight sync end the step. In the one-step-off modes the rollout of the next step precedes the
// wait for the rewards of this step, so that its samples are those of a policy that is one update
// older.
//
// [Run] returns the data of a measurement: when each sample should be submitted and when it was,
// how long the trainer waited, rewards, advantages and the policy after each step.
//
// The policy consists of a few numbers around which responses are drawn. Its arithmetic is that of
// IEEE 754 in a fixed order without library functions except the square root. Therefore two
// trainers, in any language, that get the same rewards have the same bits at the end (policy.go;
// trainer_modes.py has the same arithmetic).
package trainer
