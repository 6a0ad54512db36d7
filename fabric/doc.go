// Package fabric is the engine: it brings tickets from gateways to free slots over
// NATS JetStream. It implements loop.Engine and loop.Presence for the gateway's
// side and workers.Source for the worker's.
//
// The life of a ticket: Publish puts it into a work-queue stream kept in memory. A
// worker's Source files pull requests for exactly as many tickets as the worker
// has free slots; each request expires after a random 10–100 ms and is filed
// again, and goes to the front of the queue of requests one time in as many as
// there are workers. Requests that stay open are served in a fixed cycle: χ² of
// successive worker pairs above 10,000, against 63 at random with 8 workers. With
// the random expiry alone it was 630 at 100 samples/s. The
// server hands the ticket to one request; from then on it is leased. The worker
// extends the lease, and ends it when the gateway has the result. A lease that
// lapses makes the ticket available again.
//
// Nothing is prefetched: the number of open requests plus undelivered tickets never
// exceeds the worker's free slots, so that a ticket never waits behind a busy
// worker while another is idle.
//
// Open starts a server inside the process: it listens on no port, needs no disk
// and costs about 25 MB. The pixels never pass through it.
package fabric
