// Package netlab makes network faults for tests.
//
// The life of a Lab: New makes a bridge with an address in the test's own network, so
// that the test reaches every host and they reach the test. Host makes a network
// namespace on that bridge; Command runs a program in it, Listen opens a socket of
// the test process in it. Faults are made for one host at a time: its link down, one
// direction cut, packets lost at random, its bandwidth limited; Heal ends them all.
// The end of the test removes everything; what a killed test left behind is removed by
// the next New, which knows it by the process id in its name.
//
// A Lab needs root, Linux, ip, and for the faults iptables and tc; New and Require skip
// the test with the reason where something is missing.
//
// A Proxy needs nothing: it is a TCP proxy inside the test that delays, limits,
// freezes, corrupts, refuses and cuts.
package netlab
