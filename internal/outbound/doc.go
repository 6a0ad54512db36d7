// Package outbound sends all HTTP requests of the process: to chat endpoints, HTTP scorers,
// sandboxes and the engines behind the reward router.
//
// The life of a call:
//
//  1. NewTransport gets the policy for addresses, and Transport.Upstream the configuration of each
//     set of equivalent endpoints. Callers with the same URLs and key file get the same Upstream, so
//     that its limits apply to the whole process.
//  2. Do waits until fewer than Concurrency calls are in flight, first come first served, then until
//     the requests and tokens per minute allow another request. Both waits end with the caller's
//     context; a queue of MaxWaiting calls is full. The time limit of the component that makes the
//     call begins after both waits (rewards.Start).
//  3. The endpoint with the fewest requests in flight gets the request, a random one if there are
//     several. Endpoints that this call has not tried yet are preferred, and so are endpoints that
//     are not clearly slower than others (pace.go); calls with the same Near go to the same endpoint
//     while its load allows. An endpoint that failed BreakAfter times in a row, not counting
//     repeated answers 500 to the same body, gets no requests for a pause. Then it is probed with one
//     request. If the probe fails, the pause is twice as long, up to BreakMax. While all endpoints
//     are out of service, calls wait for the next probe, because a call that fails at once would only
//     make the next sample fail. A call whose deadline is before the probe fails at once, with the
//     time of the probe in its error. A call whose sample returns to its queue (rewards.Returning)
//     fails at once too: the error wraps the name of the upstream as the reason of the wait, and
//     Dependency contains the time of the next attempt. If an endpoint refused connections, and the
//     upstream has a HealthPath, the probe requests this path, and the endpoint is in service as
//     soon as it has answered (health.go).
//  4. A connection is made only to an address that the Policy allows. The check is in the control
//     hook of the socket, after name resolution, so that a name that resolves to another address the
//     second time cannot bypass the check. There are no redirects, no proxy from the environment, no
//     compressed answers, and no headers or bodies above their limits.
//  5. Status, body, and the call's own Check decide about the answer. A transient failure (no
//     connection, timeout, 408, 425, 429, 5xx, a broken body, an error of Check that blames the
//     dependency) is retried after a random pause of at most 0.5 s, 1 s, 2 s …, plus the time of
//     Retry-After if no other endpoint is available, while attempts, time and the retry budget last.
//     The budget is a fifth of the calls and ten retries a minute, so that retries do not multiply an
//     outage. Each attempt takes a place and the rates again.
//  6. Do returns the answer, or an error whose class describes the failure and whose blame
//     (rewards.BlameOf) is the party that can fix it: the sample for 400, 413 and 422; the dependency
//     for a transient failure, and permanently for a failure that every call would have (another
//     4xx, a redirect, an address that is not allowed, a certificate); nobody if the deadline passed
//     in a queue or the caller cancelled. The text contains the endpoint, the status and the
//     beginning of the answer; keys, passwords and header or query values that look like secrets are
//     removed.
//  7. Close refuses new calls and closes idle connections. The package starts no goroutines of its
//     own; those of connections end with the connections.
//
// With Transport.Join the upstreams of several processes share their limits, through a Fleet that
// carries reports between the processes. Upstreams are the same if their names, their limits, their
// URLs (without user and query) and the names of their key files are the same.
//
// Each process reports its demand once a second, and derives all shares from the latest reports of
// all processes. A tenth of a rate limit is divided equally, the rest by demand, which is the
// arrivals per minute plus, for each waiting call, one call per second. Places are divided by the
// largest number of requests that a process had in flight or waiting. A process that keeps using
// all its places counts as needing all places; places that no process needs raise the smallest
// shares. A smaller share applies at once, a larger one after 3 s, when all processes have received
// it (see window). Therefore the shares add up to at most the limit while no process joins or
// leaves, however late reports arrive. The processes need no agreement, no clock but their own, and
// no message for each request. A new process starts with a tenth of its part and an empty bucket of
// that size. A process without a report for 5 s loses its part. A process that has not received its
// own report for 3 s counts as partitioned: its part is the limit divided by the number of known
// processes, at least 2, or by 8 if it never received a report. In any period, all processes
// together send at most what the limit allows for the period, plus one bucket for the burst, plus a
// tenth of a part for each process that joined; they send more only while some processes are
// partitioned and others are not. Each process has at least one place, even if there are more
// processes than places.
//
// If a process finds an endpoint down, the other processes send it no requests until its probe is
// due, and for the same time again until the next report. The process that failed last makes the
// probe, and the others rely on it. An answer outweighs all reports: a process that had an answer
// in the last 5 s, and no failure since, ignores reports and notifies the others, which then ignore
// them too, until this trouble is over. Therefore one broken process can keep an endpoint from
// processes that have not sent requests to it for at most 1.25 TrustFor; only two processes that
// each found the failure independently are trusted for longer. One failure of the process itself
// plus the report of another process has the effect of BreakAfter failures.
package outbound
