// Package service has what the clients of users' HTTP services share (rewards/remote and
// rewards/verify): addresses in options, reading options with every wrong one named, cutting a
// request's texts at their placeholders (Cut), resolving a placeholder to a value of a sample
// (Source), and quoting answers in errors.
//
// A scorer's options embed Addresses. Decode fills them, Validate puts what is wrong into
// the Faults of the whole, and Upstream asks for the endpoints, which connects to nobody.
package service
