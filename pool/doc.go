// Package pool owns the devices that models run on and makes batches for them.
//
// The life of an item:
//
//  1. A scorer calls [Model.Infer] with one item. At first use the device is opened
//     and the model loaded, on a goroutine of the pool, so that both survive the
//     caller; all who need them meanwhile wait for the same attempt (shared.go). A
//     failure is answered from memory for a while, then tried again.
//  2. The item goes to its lane: the queue of its model's items of the same key
//     (names, types and shapes of the inputs, the outputs that are wanted, the
//     reduction, and what a language model is to generate), which may share a batch,
//     whosever they are. If the device's queue is full its caller waits for room
//     (policy.go). Who has to make its items ready first, to decode a picture, asks for
//     leave with [Model.Enter]: no more is made ready than fills two batches for each slot
//     of a card, and one item for each slot of the CPU (visit.go).
//  3. Whenever something changes, the device asks its policy what to run on its
//     free slots (policy.go). The policy learns what a batch of b costs in every
//     lane, S(b) = a + c·b (fit.go), and from that: how large a batch is worth
//     making, which is 1 where a is small; how long a free slot should be kept for
//     more items (lane.go); and how to split what is queued over idle slots. There
//     is no fixed window: mostly batches form while slots are busy.
//  4. The batch runs on a goroutine of its own, one per slot that is busy: the items
//     are stacked, the [Runner] runs them, the outputs are taken apart and checked
//     for NaN and infinities (device.go).
//  5. Every item gets its rows, or its own error (outcome.go). When a batch of
//     several fails its items run again one by one, so that one bad item hurts only
//     itself; when there was no memory for it, its halves run again, and the lane makes
//     smaller batches for a while; a row that is no number is run once more.
//     An item that fails by itself is answered with that error, which has a mark
//     where it says more than the item's own failure: that it waited, that something
//     could not be loaded, that the machine is at fault (internal/infer).
//
// A caller may leave at any time: its item is taken out of the queue at once; of a
// run only its row is lost, and a run for which nobody waits is ended. Infer does
// not return before nothing reads the item's tensors any more, so that their memory
// can be used again. It is the runner's part that Run returns soon after its
// context has ended: the pool cannot take a slot away from it.
//
// # Order
//
// Between tenants (a run under a profile, rewards.TenantOf) a device is shared by time and
// weight, over all its models: next is who has had least (package fair). A batch is charged to
// the tenants of its items, and filled with those of the tenants whose turn it is. Between the
// models of a tenant it is shared by time: next is who has had least of it, and
// who had nothing to do saves up nothing. So a slow model delays another by the
// batches that run, not by those that queue, and one that only fails pays for what
// its failures cost. Between the lanes of a model, and within a lane, a tenant's order is by
// arrival, except that a deadline that presses moves an item up by a second at most.
// Nothing starves: a tenant or model that waits is the next to have had least, and an item
// that waits becomes the oldest. The same turns decide who may make something ready, and who
// has room in a full queue.
//
// [Pool.Flush] says that a step's last sample has arrived: for a second no slot is
// kept waiting, and what is queued is split evenly over idle slots, because the end
// of the step is all that counts now.
//
// # Who owns what
//
// A device's mutex guards its policy, tenants' accounts, lanes, items and visits. The policy is a plain object
// without goroutine, clock or lock; the device tells it the time. A batch belongs to
// the goroutine that runs it from the moment it is handed out until it is handed
// back, only the state of its items changes under the mutex meanwhile. An item
// belongs to its caller again once done is closed, which happens exactly once.
// Locks are taken in the order shared.mu, Pool.mu; device.mu is never held together
// with another.
//
// Goroutines: one per batch that runs, at most a device's slots; one per device that
// opens and model that loads; one that waits in Close. There are none when nothing
// is going on.
package pool
