// Package deploycheck holds what deploy/ ships to what Kubernetes, Compose, systemd, Slurm,
// NATS, Prometheus and rewardloop itself accept, without a cluster.
//
// The life of a check: a kustomization is built as kubectl would build it; each object is
// read into the type of its kind, where a field that the type does not have is a fault;
// then the objects are held against each other (what is referred to is there, what is
// selected exists, ports are open, processes have the time to drain), the NATS
// configuration in them is read by the server itself, and the command lines in them by
// the rewardloop that was built from this tree.
package deploycheck
