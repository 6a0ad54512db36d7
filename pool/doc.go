// Package pool owns the devices that run models, and combines items into batches.
//
// The life of an item:
//
//  1. A scorer calls [Model.Infer] with one item. At first use the model's devices are opened and
//     the model is loaded on each of them, on goroutines of the pool, so that the work continues if
//     the caller leaves. All callers wait for the same attempt (shared.go), and only until one
//     device has the model. A failure is remembered for a while and returned immediately; then the
//     attempt is repeated.
//  2. If there are several devices, the item goes to the device on which the item is expected to
//     end first (spread.go). There it joins its batch queue: the queue of the model's items with
//     the same key (names, types and shapes of the inputs, the requested outputs, the reduction,
//     and the generation settings of a language model). Items of one batch queue may share a batch,
//     whatever their tenants are. If the queue of the device is full, the caller waits for room
//     (policy.go). A caller that must first prepare its items, for example by decoding a picture,
//     asks for permission with [Model.Enter]. The number of items in preparation is limited: two
//     batches for each slot of a card and each process of a model in Python, and one item for each
//     other slot of the CPU (visit.go), over all devices of a model.
//  3. After every change, the device asks its policy what to run on its free slots (policy.go). The
//     policy measures the cost of a batch of b items for every batch queue, S(b) = a + c·b
//     (fit.go). From the cost it computes the best size of a batch, which is 1 if a is small; how
//     long a free slot waits for more items (batchqueue.go); and how to divide the queued items
//     among idle slots. There is no fixed window; most batches form while slots are busy.
//  4. The batch runs on its own goroutine, one for each busy slot: the items are stacked, the
//     [Runner] runs them, and the outputs are split and checked for NaN and infinities (device.go).
//  5. Every item gets its rows, or its own error (outcome.go). If a batch of several items fails,
//     its items run again one by one, so that a bad item affects only itself. If memory was too
//     small for the batch, its halves run again, and the batch queue makes smaller batches for a
//     while. A row with a NaN or an infinity, and an item whose process hung, run once more. If the
//     device itself fails, the item moves to another device that has the model. An item that fails
//     alone gets the error. The error has a mark if its cause is not the item: the item only
//     waited, a model or device could not be loaded, or the machine is at fault (internal/infer).
//
// A caller may leave at any time. A waiting item is removed from the queue immediately. Of a
// running batch only the caller's row is dropped, and a run without any caller is cancelled. Infer
// returns only after the last read of the item's tensors, so that their memory can be reused. The
// runner must return from Run soon after its context has ended, because the pool cannot take a slot
// away from it.
//
// # Several devices
//
// A model with several devices has a replica on each of them: an account with batch queues in the
// device's policy, loaded separately, under the device's name. Policies are independent of each
// other. An item goes to the device where the item is expected to end first, after the running
// batches and the queued items of all tenants, by the measured S(b). A late batch is expected to
// take as much longer as it is already late. Devices within 1 % of each other take turns. Every
// 64th item goes to the idle device that was chosen longest ago, if there is one, so that an
// outdated measurement is corrected. In simulated steps, such cards end a step at most 12 % later
// than one device with the same number of slots and one queue, and 8 cards run 8.0 times as many
// items as one card.
//
// A device that cannot be opened, or on which the model cannot be loaded, is left out while another
// device serves the model, and is tried again after a pause that doubles. The same applies to a
// device whose run reports that the device is lost (infer.ErrUnavailable, infer.ErrHost): the items
// of that run, and the items that wait there for models with other devices, choose again among the
// other devices. An item that fails because of a device is not tried there again, and an item moves
// at most three times for each device. When another device has loaded the model, the items that
// wait for the model on other devices choose again. To move, an item is completed on its device,
// and its caller submits it to the next device, so that two devices never have the same item.
//
// # Memory
//
// Each device has a book of the models in its memory (memory.go), which [Config.Memory] limits. A
// model counts with the amount that its runner reports, and before its first load with twice the
// size of its files. If there is no room for a load, the pool evicts unneeded models, the least
// recently used first: as many as the load requires, or none. A model is needed while callers of
// Infer have items there or wait for it to be loaded, and while it runs. If not enough models can
// be evicted, the load waits up to half of LoadTimeout for models to become idle, and then fails
// with the numbers in the error. An evicted model is loaded again at its next use; if other devices
// serve the model, it is loaded again only if there is room.
//
// A model stays loaded for at least as long as its load took, and at least a second. So two models
// that alternate on a device that is too small for both spend at most half of the device's time on
// loading. Each model is served in turn as long as samples wait for it. A sample waits for the stay
// of the other model, for the samples of the other model, and for a load.
//
// An item that runs alone and for which the device has no memory (relief.go) runs again after all
// unneeded models are unloaded, and once more after the runner is restarted. If it still fails, the
// error contains what was tried. The machine is at fault if other items of the same shape had
// enough memory or other models stayed on the device. A device is restarted at most once for each
// item and at most every ten seconds; the interval grows up to ten minutes while restarts do not
// help. If a load lacks memory, the pool unloads the unneeded models, waits for models as described
// above, and tries the load again.
//
// # Order
//
// Tenants (a run under a profile, rewards.TenantOf) share a device by time and weight, over all its
// models: the next tenant is the one with the least time so far (package fair). A batch is charged
// to the tenants of its items, and is filled with items of the tenants whose turn it is. The models
// of a tenant share the tenant's time: the next model is the one with the least time so far, and
// idle time is not saved up. So a slow model delays another model by its running batches, not by
// its queue, and a model that only fails is charged for its failures. The batch queues of a model,
// and the items of a tenant within a batch queue, are served in the order of arrival, except that a
// near deadline moves an item forward by at most a second. No item starves: a waiting tenant or
// model becomes the one with the least time, and a waiting item becomes the oldest. The same order
// decides which caller may prepare an item, and which item gets room in a full queue.
//
// [Pool.Flush] reports that the last sample of a step has arrived. For a second no slot waits for
// more items, and the queued items are divided evenly among idle slots, because only the end of the
// step matters then.
//
// # Who owns what
//
// The mutex of a device guards its policy, tenants' accounts, batch queues, items and visits. The
// book of memory has its own mutex. Policy and book are plain objects without goroutine or clock;
// the device passes them the time. A batch belongs to the goroutine that runs it until the run
// ends; meanwhile only the state of its items changes, under the mutex. An item belongs to its
// caller again when done is closed, which happens exactly once. Locks are taken in the order
// Model.mu, device.mu, memory.mu, shared.mu, Pool.mu, and never those of two devices together.
//
// Goroutines: one for each running batch, at most as many as the device has slots, which also makes
// room in memory for its item; one for each device that is being opened and each model that is
// being loaded, which also unloads other models; and one that waits in Close. An idle pool has no
// goroutines.
package pool
