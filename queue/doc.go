// Package queue carries tickets from gateways to workers with free places over NATS JetStream, in
// one process or between machines. A gateway's side, Queue, implements loop.Queue and
// loop.Presence; the side of a process that has workers alone is Member; the Source of each worker
// implements workers.Source.
//
// A process has one way to NATS, its bus: a server inside the process that opens no port
// (25 MB, no disk), one that listens (Config.Listen), or the addresses of others
// (Config.URLs); and one connection, which all its workers share. The names of what is
// on the bus are in bus.go, who may use which in package acl. Payloads and results never
// pass through it: workers of other processes claim them at the gateway (package claim).
//
// The life of a ticket:
//
//  1. The loop has chosen a sample. Queue.Publish writes into its ticket where the payload
//     can be claimed and the token for it (Config.Sign), and puts it into RL_TICKETS, a
//     work-queue stream kept in memory, below the subject of its queue, which is that of
//     its profile. It waits for no answer: the gateway publishes again what nobody claims.
//  2. The keeper, a goroutine of every gateway, has made the stream, and a consumer for each
//     queue from which it has heard a worker take. Only gateways make anything; a process
//     without one asks a queue that is not there yet again after 100 to 200 ms, and ever
//     more seldom, up to 20 to 40 s.
//  3. A worker calls Source.Take for its free places, for each of its queues. The queue's hub
//     in its process asks for as many tickets as all of these places, in requests that expire after a
//     random 10–100 ms and are filed again, to the front of the server's queue one time in as
//     many as there are processes. Requests that stay open are served in a fixed cycle: with
//     eight workers that asked for themselves, χ² of successive pairs was above 10,000, with
//     random expiry alone 630 at 100 samples/s, with both 63, as at random. Where more
//     than 16 processes ask, requests live longer, so that all together ask no more often.
//     At a queue that has had no ticket for 1 s there is one request of each process, for one
//     ticket, which stays open for 20 to 40 s (pull.go). A gateway that publishes says so to
//     all who take from the queue (Queue.rouse), and so does the first ticket to the one who
//     gets it; then all ask as above.
//  4. The server hands the ticket to one request, the hub to one of its places at random. From
//     then on it is leased: the worker says every third of Config.Lease that it is at work, where it
//     is for as long. Nothing is prefetched. What comes for a place that is no longer free is handed on
//     within 50 ms, so that no ticket waits behind a busy worker while another is idle.
//  5. The worker claims the payload, scores it, and has the gateway take the result. Only then
//     it ends the lease (Done), or gives the ticket to others (Return). A lease that
//     lapses makes the ticket available again. An attempt that has become needless is
//     revoked: Queue.Revoke tells all hubs, which end its lease or swallow its ticket.
//
// Who is there: workers announce themselves each second (presence.go), gateways too
// (gateways.go). A worker that has been silent for Config.Gone no longer counts as live; a
// gateway that has been, while this process could hear it, has died with its samples, so
// that nobody dials it for them.
//
// What is lost: a connection is looked for without end, and meanwhile whatever would be
// sent is refused at once, for all of it is said again or made again. When it is back the
// NATS may be another one that knows nothing. The keeper makes what there was, and then
// the gateway publishes every ticket that nobody has claimed (OnRestored).
//
// Fleet is beside tickets: a small bucket in which each process says what it wants of
// servers that are asked by HTTP, so that limits and breakers hold for all of them.
package queue
