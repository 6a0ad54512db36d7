// Package outbound sends all HTTP requests of the process: to chat endpoints, HTTP scorers,
// sandboxes and the engines behind the reward router.
//
// The life of a call:
//
//  1. NewTransport is told once which addresses may be reached, and Upstream once for
//     each set of equal endpoints. Whoever asks for the same URLs and key file again
//     gets the same Upstream, so that its limits hold for the whole process.
//  2. Do waits until fewer than Concurrency calls are under way, first come first served, then until the
//     requests and tokens per minute allow another request. Both waits end with the
//     caller's context; a queue of MaxWaiting calls is full. The time of the component
//     that the call belongs to begins after them (rewards.Start).
//  3. The endpoint with the least in flight gets the request, a random one of several
//     such; one that this call has not tried yet where there is one. An endpoint that
//     failed BreakAfter times in a row, not counting the same body's second 500, is
//     left alone for a pause, then probed with one request, and left alone again, for
//     twice as long up to BreakMax, if that fails. While all are left alone calls wait for
//     the next probe, because a call that fails at once would only burn the next sample;
//     one whose deadline comes before the probe does fail at once, and says when the probe
//     is. So does one whose sample goes back to its queue (rewards.Returning): its error
//     names the upstream as what the sample waits for, and Dependency says when to try again.
//     Where nobody could connect, and the upstream has a HealthPath, the probe asks there, and
//     the endpoint is back as soon as that is answered (health.go).
//  4. A connection is made only to an address that the Policy allows. The check sits
//     in the socket's control hook, after the name was resolved, so that a name which
//     resolves to another address the second time gains nothing. There are no
//     redirects, no proxy from the environment, no compressed answers, and no headers
//     or bodies beyond their bounds.
//  5. The answer is judged: status, body, then the call's own Check. What may pass
//     (no connection, time-out, 408, 425, 429, 5xx, a broken body, what Check blames the
//     dependency for) is tried again, after a random pause of at most 0.5 s, 1 s, 2 s … or
//     what Retry-After asks for, while attempts, time and the retry budget last. The
//     budget is a fifth of the calls and ten a minute: an outage is not multiplied.
//     Slot and rate are taken anew for each attempt.
//  6. Do returns the answer, or an error whose class says what happened and whose blame
//     (rewards.BlameOf) says who can mend it: the sample for 400, 413 and 422; the
//     dependency for what may pass, and permanently for what would be the same for every
//     call (another 4xx, a redirect, an address that is not allowed, a certificate);
//     nobody where the deadline passed in a queue or the caller left. Its text names
//     endpoint, status and the beginning of the answer; keys, passwords and what looks
//     like one in a header or query are cut out.
//  7. Close refuses new calls and closes idle connections. The package starts no
//     goroutines of its own; those of connections end with them.
//
// With Transport.Join the upstreams of several processes share their limits, by a Fleet that
// carries reports between them. Upstreams are the same where name, limits, URLs (without user
// and query) and the key file's name are.
//
// Each process says once a second what it wants, and derives all shares from what all
// have said: a tenth of the limit is divided equally, the rest by demand, which is the
// arrivals a minute and, for each call that waits, one a second. Places are divided by how many
// a process had and wanted at a time, where one that goes on to have all it may wants all; what
// nobody wants raises who wants least. A smaller share
// holds at once, a larger one after 3 s, when everybody has heard of it (see window): the
// shares sum to the limit at most as long as nobody comes or goes, however late reports
// are. The processes need no agreement, no clock but their own, and no message for a
// request. Who comes starts with a tenth of its part and an empty bucket of that size;
// a process of which no report came for 5 s has no part any more. A process that has not got its
// own report back for 3 s counts as partitioned: its part is the limit divided by the number of
// processes that it knew, by 2 at least, or by 8 if it never knew any. In any time, all processes together send at most what the limit
// allows in it, one bucket for the burst, and a tenth of a part for each that came;
// more only where some are partitioned and others are not.
// There is at least one place for each process, also where there are fewer than processes.
//
// An endpoint that a process found dead is left alone by the others until its probe is
// due, and as long again for the report that must follow; who failed last probes, and the
// others rely on it. An answer outweighs all that: who had one in the last 5 s, and no
// failure since, does not listen, and tells the others, who then do not either, until
// that trouble is over. One broken process can so keep an endpoint from those that had
// nothing to ask for one and a quarter of TrustFor at most; only two that each found out for
// themselves are relied on for longer. One failure of its own besides the report of another
// is as good as BreakAfter.
package outbound
