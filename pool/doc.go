// Package pool owns the devices that models run on and makes batches for them.
//
// The life of an item:
//
//  1. A scorer calls [Model.Infer] with one item. At first use the model's devices are opened
//     and the model loaded on each, on goroutines of the pool, so that both survive the
//     caller; all who need them meanwhile wait for the same attempt (shared.go), and no longer
//     than until one device has the model. A failure is answered from memory for a while, then
//     tried again.
//  2. Of several devices the item gets the one where it is expected to end first (spread.go).
//     There it goes to its batch queue: the queue of its model's items of the same key
//     (names, types and shapes of the inputs, the outputs that are wanted, the
//     reduction, and what a language model is to generate), which may share a batch,
//     whosever they are. If the device's queue is full its caller waits for room
//     (policy.go). Who has to make its items ready first, to decode a picture, asks for
//     leave with [Model.Enter]: no more is made ready than fills two batches for each slot
//     of a card, and one item for each slot of the CPU (visit.go), over all devices of a model.
//  3. Whenever something changes, the device asks its policy what to run on its
//     free slots (policy.go). The policy learns what a batch of b costs in every
//     batch queue, S(b) = a + c·b (fit.go), and from that: how large a batch is worth
//     making, which is 1 where a is small; how long a free slot should be kept for
//     more items (batchqueue.go); and how to split what is queued over idle slots. There
//     is no fixed window: mostly batches form while slots are busy.
//  4. The batch runs on a goroutine of its own, one per slot that is busy: the items
//     are stacked, the [Runner] runs them, the outputs are taken apart and checked
//     for NaN and infinities (device.go).
//  5. Every item gets its rows, or its own error (outcome.go). When a batch of
//     several fails its items run again one by one, so that one bad item hurts only
//     itself; when there was no memory for it, its halves run again, and the batch queue makes
//     smaller batches for a while; a row that is no number, and an item whose process hung,
//     is run once more. What a device fails by its own fault runs on another that has the
//     model.
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
// # Several devices
//
// A model with several devices has a replica on each: an account with batch queues in that device's
// policy, loaded by itself, under the device's name. Policies know nothing of each other. An
// item goes where it is expected to end first: after what runs there (a batch that is late is
// expected to need as long again as it is late), and what is queued there by the measured
// S(b), whosever turn it is; devices within 1 % of each other take turns, and every 64th item goes to
// the device that has been idle longest, if there is one, so that what was measured in a bad hour
// is not kept for ever. In simulated steps
// such cards end a step at most 12 % later than one device with as many slots and one queue for
// all, and 8 of them run 8.0 times what one does.
//
// A device that cannot be opened, or on which the model does not load, is left out while another
// serves, and tried again after a pause that doubles. So is one whose run tells that the
// device is lost (infer.ErrUnavailable, infer.ErrHost): the items of that run, and those that wait there
// for models with other devices, choose again among the others. An item is tried once on each
// device at most, and moves at most three times for each. When one more device has loaded a model,
// what waits for the model elsewhere chooses again. An item moves by being answered: its caller takes it
// to the next device, so that no two devices ever have it.
//
// # Memory
//
// Each device has a book of the models in its memory (memory.go), and [Config.Memory] bounds
// it. A model counts with what its runner says it takes, before its first load with twice its
// files. A load for which there is no room evicts models that nobody needs, the least recently
// used first, as many as it needs or none; a model is needed while callers of Infer have items there or
// wait for it to be loaded, and while a run of it goes on. Without enough of them the load waits for one to
// become idle, for half of LoadTimeout, and then fails with the numbers. A model that was evicted is loaded again
// when it is next used; one that other devices serve, when there is room.
//
// A model stays for as long as its load took, and a second at least, before it is evicted. So two
// models that alternate on a device too small for both spend at most half of the device's time
// on loading; each is served in turn as long as samples wait for it, and waits for the other's stay,
// what waits for that one, and a load.
//
// An item for which a device has no memory by itself (relief.go) runs again once the models are
// unloaded that nobody needs, and once more when the runner has been restarted. Then it fails by
// name, and it is the machine's fault if others of its shape had memory or other models
// stayed on the device. A restart is for one item once, at most every ten seconds, and down to every
// ten minutes while restarts help nobody. A load that lacks memory has the models unloaded that
// nobody needs, waits for them as above, and is tried again.
//
// # Order
//
// Between tenants (a run under a profile, rewards.TenantOf) a device is shared by time and
// weight, over all its models: next is who has had least (package fair). A batch is charged to
// the tenants of its items, and filled with those of the tenants whose turn it is. Between the
// models of a tenant it is shared by time: next is who has had least of it, and
// who had nothing to do saves up nothing. So a slow model delays another by the
// batches that run, not by those that queue, and one that only fails pays for what
// its failures cost. Between the batch queues of a model, and within a batch queue, a tenant's order is by
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
// A device's mutex guards its policy, tenants' accounts, batch queues, items and visits, and its book of memory.
// Policy and book are plain objects without goroutine, clock or lock; the device tells them the time. A batch belongs to
// the goroutine that runs it from the moment it is handed out until it is handed
// back, only the state of its items changes under the mutex meanwhile. An item
// belongs to its caller again once done is closed, which happens exactly once.
// Locks are taken in the order Model.mu, device.mu, shared.mu, Pool.mu, and never those of two
// devices together.
//
// Goroutines: one per batch that runs, at most a device's slots, which does what is done for the
// memory of its item, too; one per device that
// opens and model that loads on one, which unloads others for it; one that waits in Close. There are none when nothing
// is going on.
package pool
