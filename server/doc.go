// Package server is the HTTP face of a gateway: the websocket stream, our own JSON, the
// protocols of other systems, the reward router, the state endpoints, the metrics and the
// status page. It is the only package that knows gin.
//
// The life of a Server:
//
//  1. New reads the token and the certificates and builds the routes (routes.go,
//     the table of contents of this package). Nothing listens yet.
//  2. Start listens. A public address without a token is refused.
//  3. A request passes the access log, the recovery from panics, and the guard
//     (guard.go), which checks the token before anything of the body is read or a
//     connection upgraded.
//  4. GET /v1/stream is upgraded and handed to loop.Manager.Serve, and is the
//     loop's from there on.
//  5. Samples come in with POST: /v1/score takes our JSON (json.go), the other paths are
//     those of the table of protocols in the package compat. The body is read whole,
//     within a limit of its own and a budget of all bodies (body.go). Requests with the
//     same bytes share one flight (join.go): its goroutine, not the handler's, decodes
//     the body, submits the samples and waits for them (flight.go), and it is cancelled
//     when the last request that waits for it has gone.
//  6. What the reward router is asked goes to an engine and its answer back
//     (router.go), without a flight: the handler waits, and a closed request cancels
//     the call.
//  7. Drain refuses new samples with 503 and waits for the flights in the air;
//     Stop closes the listener, ends what is left, and returns when no goroutine of
//     the server is running.
//
// What a client is told when a sample has no score depends on whether another try
// may help, because clients retry by status code: 400 for a body that is not what
// its protocol reads, 413 for one that is too large, 422 for what will fail again, 503
// with Retry-After for what may not. A sample never causes a 500: flow_grpo's
// client retries that a thousand times.
package server
