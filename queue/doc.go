// Package queue carries tickets from gateways to workers with free places over NATS JetStream,
// within one process or between machines. Queue is the side of a gateway, and implements loop.Queue
// and loop.Presence. Member is the side of a process that has only workers. The Source of each
// worker implements workers.Source.
//
// A process has one bus, its access to NATS: a server inside the process that opens no port (25 MB,
// no disk), a server that listens (Config.Listen), or the addresses of other servers (Config.URLs).
// All workers of the process share one connection. The names on the bus are in bus.go; package acl
// defines who may use them. Payloads and results never pass through the bus: workers of other
// processes claim them at the gateway (package payload).
//
// The life of a ticket:
//
//  1. The loop has chosen a sample. Queue.Publish adds to the ticket the address where its payload
//     can be claimed and the token for the claim (Config.Sign), and publishes the ticket in
//     RL_TICKETS, a work-queue stream that is kept in memory (on disk with Config.Durable), under
//     the subject of the profile's queue. Publish does not wait for an acknowledgement: the gateway
//     publishes an unclaimed ticket again.
//  2. The keeper, a goroutine of every gateway, has created the stream, and a consumer for each
//     queue that a worker has announced. Only gateways create these. A process without a gateway
//     whose queue does not exist yet repeats its request after 100 to 200 ms, and then at growing
//     intervals of up to 5 to 10 s.
//  3. A worker calls Source.Take for its free places in each of its queues. The queue's hub in the
//     process requests tickets for all these places, in requests that expire after a random time of
//     10 to 100 ms. With n processes, a repeated request goes to the front of the server's queue
//     with probability 1/n. Requests that stay open would be served in a fixed cycle: with eight
//     workers that each sent requests, χ² of successive pairs was above 10,000, with random expiry
//     alone 630 at 100 samples/s, with both 63, the same as for random order. With more than 16
//     processes, requests live longer, so that the total rate of requests stays the same.
//     For a queue without tickets for 1 s, each process has one open request for one ticket, which
//     lives 20 to 40 s (pull.go). A gateway that publishes a ticket notifies all processes that take
//     from the queue (Queue.rouse), and the first ticket notifies the process that gets it; then
//     these processes send requests as described above.
//  4. The server hands the ticket to one request, and the hub to one of its places at random. From
//     then on the ticket is leased: while the worker has the ticket, it renews the lease every third
//     of Config.Lease. Nothing is prefetched. A ticket for a place that is no longer free is handed
//     on within 50 ms, so that no ticket waits at a busy worker while another worker is idle.
//  5. The worker claims the payload, scores the sample, and hands the result to the gateway. Only
//     then does the worker end the lease (Done), or hand the ticket back (Return). A lapsed lease
//     makes the ticket available again. An attempt that is no longer needed is revoked: Queue.Revoke
//     notifies all hubs, which end the attempt's lease or drop its ticket.
//
// Workers announce themselves every second (presence.go), and so do gateways (gateways.go). A
// worker without an announcement for Config.Gone no longer counts as live. A gateway without an
// announcement for Config.Gone, while this process was connected to NATS, has ended with its
// samples, and workers no longer connect to it.
//
// A process tries to restore a lost connection without a limit. Meanwhile every message is refused
// at once, because all messages are repeated later. After the reconnection, NATS may be another
// server without any state. The keeper then creates the stream and the consumers again, and the
// gateway publishes all unclaimed tickets again (OnRestored).
//
// Fleet is independent of tickets: a small bucket in which each process publishes its demand for
// upstream servers that are called over HTTP, so that limits and breakers apply to all processes
// together.
package queue
