// Package rewards defines the vocabulary of the project: what a Sample is, how a Scorer turns it
// into a Score, and how a Manager combines several components into one reward.
//
// The life of a reward, in the order a reader meets it:
//
//  1. A Registry is filled with named scorers (rewards/standard names all that
//     ship) and a profile of the configuration picks some of them as Components.
//  2. NewManager checks the components once: keys, weights, failure policies, the
//     extra fields each scorer declares.
//  3. A worker calls Manager.Run with one Sample. All components start at once, each
//     in a goroutine of its own with a deadline, a retry budget and a panic
//     guard around the call of the scorer.
//  4. Run returns a Result as soon as it is decided: every component answered, a
//     required component failed for good, or the context ended. A scorer that
//     overruns its deadline is abandoned, not waited for; Run.Done tells when
//     its goroutine has really returned, and until then the sample's memory
//     must stay.
//  5. A component that failed under the policy group_mean leaves the Result Pending:
//     whoever sees the whole prompt group (package loop) supplies the mean of
//     the group's valid members and calls Pending.Resolve.
//  6. Where a component looks at whole prompt groups, Run leaves the Result Partial:
//     whoever sees the whole group calls Manager.RunGroup with its members, which
//     runs those components and finishes every member's Result.
//
// How many samples of a profile a process can use at a time follows from its scorers: each
// says how many of its calls are executed at once (Concurrent), and Places counts what is
// under way, component by component, as OnEnd reports it.
//
// Absence is never zero: a failed, expired or skipped reward has no value until
// the configuration names one, and then the result says so.
//
// The package imports the standard library only; every other package of the
// project may import it.
package rewards
