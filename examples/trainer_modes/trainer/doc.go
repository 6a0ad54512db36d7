// Package trainer is the loop of a trainer with everything but the model: a toy policy
// learns from the rewards of a running reward loop, in each of the six ways in which a
// trainer can arrange its step around them ([Mode]).
//
// The life of a step: its samples are declared. The rollout draws each from the policy as
// its time comes, and submits it then (the streaming modes) or with all others at the end
// of the rollout. The log-probabilities follow, for which the trainer only sleeps. Then it
// waits for rewards: for all of them, or (the pipeline modes) for as many whole prompt
// groups as a mini-batch has; advantages within each group, and an update of the policy,
// mini-batch by mini-batch. Validation and the sync of weights end the step. In the
// one-step-off modes the rollout of the next step comes before the wait for the rewards of
// this one, so that its samples are those of a policy that is one update older.
//
// [Run] returns what a measurement needs: when each sample was to be submitted and when it
// was, how long the trainer waited, rewards, advantages and the policy after each step.
//
// The policy is a few numbers around which responses are drawn. Its arithmetic is that of
// IEEE 754 in a fixed order without a library function but the square root, so that two
// trainers, in any language, that get the same rewards end with the same bits
// (policy.go; trainer_modes.py has the same).
package trainer
