// Package fleet starts rewardloop as it runs on several machines, for tests: broker,
// gateways and workers, each a process of its own, each on a host of a netlab.Lab or on
// this one.
//
// The life of a Fleet: New writes the configuration; Broker, Gateway and Worker start a
// process and return when it is ready. A Process can be killed, stopped, continued,
// told to drain and started again at the same address. The reward is asked of the test
// process itself (scorer_linux.go): it is a checksum of the bytes that arrive, so that a
// swapped or damaged payload has a wrong score, and the test counts how often each
// sample was scored. Load sends samples through the Go client, each client behind a
// netlab.Proxy that also reads the results on the wire; its Report says what was lost,
// repeated or wrong, and how long nothing came.
//
// All processes die with the test, and with the test process. Linux only.
package fleet
