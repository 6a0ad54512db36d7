// Package sim computes the best possible time of a step: what an ideal reward loop would have
// needed for the same rollouts and rewards.
//
// The life of a figure: a run records a Trace, one Span per sample in seconds
// since the step began. Measure takes from it when every sample was generated
// and how long its scoring took, and feeds both to two schedules on the same
// number of servers: an ideal pull queue (IdealQueue) and scoring after the
// rollout (BatchAfterRollout). Beside them stands F*, a finishing time that no
// schedule can beat, clairvoyant or not (LowerBound). The Report holds the
// measured step against all three, says where the samples' time went and who was
// last; Summarize puts the reports of several steps together. A Trace is JSON and
// holds everything the Report is made of, so a printed figure can be computed
// again by anybody; WriteChrome draws it.
//
// What has not been run yet is simulated in virtual time, event by event.
// Dispatch plays one step on a pool whose servers have speeds, stragglers
// and failures, under a policy. Trainer plays several steps of a training
// loop around such a pool, in six modes of overlap, and TrainerBound is what no
// pool beats there. One of the policies, PolicyRandomBlind, is verl's dispatch, to
// be compared with.
//
// A server is one place where one sample is scored at a time; a worker with c
// places counts as c servers. Unless speeds are named all are equally fast.
//
// Everything here is a pure function; there is no clock, no goroutine and no
// state.
package sim
