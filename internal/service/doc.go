// Package service contains the parts that the clients of users' HTTP services share (rewards/remote
// and rewards/verify): addresses in options, parsing of options with a list of all errors,
// splitting a request's texts at their placeholders (Cut), resolving a placeholder to a value of a
// sample (Source), and quoting answers in errors.
//
// A scorer's options embed Addresses. Decode sets them, Validate adds their errors to the Faults of
// all options, and Upstream returns the endpoints without opening connections.
package service
