// Package netlab creates network faults for tests.
//
// The life of a Lab: New creates a bridge with an address in the test's own network, so that the
// test and the hosts can reach each other. Host creates a network namespace on that bridge. Command
// runs a program in the namespace, and Listen opens a socket of the test process in it. Faults
// apply to one host at a time: link down, one direction cut, random packet loss, limited bandwidth.
// Heal ends all of them. The end of the test removes everything. Leftovers of a killed test are
// removed by the next New, which recognises them by the process id in their names.
//
// A Lab needs root, Linux, ip, and for the faults iptables and tc. New and Require skip the test
// with the reason if something is missing.
//
// A Proxy has no requirements: it is a TCP proxy inside the test that delays, limits, freezes,
// corrupts, refuses and cuts connections.
package netlab
