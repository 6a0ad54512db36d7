// Package server is the HTTP server of a gateway: the websocket stream, rewardloop's own JSON API,
// the protocols of other systems, the reward router, the state endpoints, the metrics and the
// status page. Only this package depends on gin.
//
// The parts of a Server:
//
//  1. New reads the tokens and the certificates and creates the routes (routes.go, the table of
//     contents of this package). New does not listen.
//  2. Start listens. A public address without a token is refused.
//  3. A request passes the access log, the recovery from panics, and the guard (guard.go), which
//     checks the token before any of the body is read or a connection is upgraded.
//  4. GET /v1/stream is upgraded and passed to loop.Manager.Serve, which handles the connection from
//     then on.
//  5. Samples arrive with POST: /v1/score accepts rewardloop's own JSON (json.go), the other paths
//     are those of the table of protocols in the package compat. The whole body is read, within its
//     own limit and a budget of all bodies (body.go). Requests with the same bytes share one flight
//     (join.go). The goroutine of the flight, not that of the handler, decodes the body, submits the
//     samples and waits for their results (flight.go). The flight is cancelled when the last request
//     that waits for it has ended.
//  6. A request for the reward router is forwarded to an engine and its answer returned (router.go)
//     without a flight: the handler waits, and a closed request cancels the call.
//  7. Drain refuses new samples with 503 and waits for the flights. Stop closes the listener, ends
//     all remaining requests, and returns when no goroutine of the server is running.
//
// The status code for a sample without a score depends on whether a retry may help, because clients
// retry by status code: 400 for a body that its protocol cannot read, 413 for a body that is too
// large, 422 for a sample that will fail again, and 503 for a sample that may succeed later, with
// Retry-After if the cause is temporary. A sample never causes a 500, because flow_grpo's client
// retries after a 500 a thousand times.
package server
