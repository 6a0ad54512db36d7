// Package fleet starts rewardloop as on several machines, for tests: broker, gateways and workers,
// each as a process on a host of a netlab.Lab or on this machine.
//
// The life of a Fleet: New writes the configuration. Broker, Gateway and Worker start a process and
// return when it is ready. A Process can be killed, stopped, continued, drained, and started again
// at the same address. The reward is computed by the test process itself (scorer_linux.go). It is a
// checksum of the received bytes, so that a swapped or damaged payload has a wrong score. The test
// counts how often each sample was scored. Load sends samples with the Go client; each client is
// behind a netlab.Proxy, which also reads the results on the wire. The Report of the load contains
// the lost, repeated and wrong results and the longest time without a result.
//
// All processes end with the test and with the test process. The package needs Linux.
package fleet
