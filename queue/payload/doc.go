// Package payload transfers payloads from a gateway to workers in other processes, and their
// results back, over websockets with the subprotocol rewardloop.claim.v1. Server is the gateway's
// side. Client is the workers' side, and implements workers.Gateway. docs/claim.md is the
// specification.
//
// The life of a claim:
//
//  1. The gateway's tickets carry an address and a token, which Key.Sign makes for one attempt with a
//     limited lifetime. A worker that has taken a ticket calls Client.Claim with it.
//  2. The client has up to two connections to a gateway: one for payloads up to 1 MiB and for
//     results, one for larger payloads. A connection is opened when it is first needed, with the
//     token of the claim that needs it, and opened again if it breaks while there is work for it. One
//     goroutine owns a connection: it dials, and reads.
//  3. The server checks the token again, requests the frames from the loop and announces their
//     lengths and checksums. A goroutine of each connection, the pusher, sends the payloads in turns
//     of 256 KiB, straight from the frames' buffers, so that a picture never waits for a video.
//  4. The client's reader fills one buffer of the exact size from the socket. Claim checks length and
//     CRC-32C, and sends a confirmation. Until then the server keeps the frames, so that a claim
//     whose connection breaks is repeated without costing the sample an attempt.
//  5. The claim is open until its result is accepted or the worker has released the frames.
//     Client.Finish sends the result with the ticket's token, and again over the next connection,
//     until the gateway has acknowledged it.
//  6. A worker process that has no connection for Config.LostAfter is lost: the server drops its
//     claims and reports the workers that had claims.
package payload
