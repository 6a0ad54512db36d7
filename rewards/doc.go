// Package rewards defines the vocabulary of the project: what a Sample is, how a Scorer turns it into a
// Score, and how a Manager combines several components into one reward.
//
// The life of a reward:
//
//  1. A Registry is filled with named scorers (rewards/standard registers all scorers that
//     rewardloop contains), and a profile of the configuration selects some of them as Components.
//  2. NewManager checks the components once: keys, weights, failure policies, and the extra fields
//     that each scorer declares.
//  3. A worker calls Manager.Run with one Sample. All components start at the same time, each in
//     its own goroutine, with a deadline, a limit of retries and a guard against panics around the
//     call of the scorer.
//  4. Run returns a Result as soon as the result is decided: every component has answered, a
//     required component has failed for good, or the context has ended. Run does not wait for a
//     scorer that exceeds its deadline. Run.Done is closed when all goroutines have returned;
//     until then the sample's memory must stay valid.
//  5. A component that failed under the policy group_mean leaves the Result Pending. The owner of
//     the whole prompt group (package loop) supplies the mean of the group's valid members and
//     calls Pending.Resolve.
//  6. If a component scores whole prompt groups, Run leaves the Result Partial. The owner of the
//     whole group calls Manager.RunGroup with its members. RunGroup runs those components and
//     finishes the Result of every member.
//
// The number of samples of a profile that a process can score at the same time depends on its
// scorers. Each scorer reports how many of its calls are executed at the same time (Concurrent),
// and Places counts the calls under way for each component, as OnEnd reports them.
//
// A missing value is never zero: a failed, expired or skipped reward has no value unless the
// configuration sets one, and then the result contains a flag.
//
// The package imports only the standard library; every other package of the project may import it.
package rewards
