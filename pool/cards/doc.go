// Package cards finds the NVIDIA GPUs that this process may use, and assigns models to them.
//
// [Find] lists the cards with CUDA's numbers for this process: the cards in CUDA_VISIBLE_DEVICES,
// in that order, or all cards if the variable is not set. The instances of a card that is divided
// by MIG are separate cards. The properties of the cards come from NVML in a build with the tag
// nvml, otherwise from nvidia-smi. If neither exists, they come from the driver's files, and
// otherwise only the entries of CUDA_VISIBLE_DEVICES are known. CUDA is never loaded. A faulty card
// can hang a process that uses it, so nvidia-smi runs as a child process, which is killed at its
// timeout.
//
// [Make] assigns devices: for given cards and wants it computes the cards and the amount of memory
// of each owner, or lists every want that does not fit. Make is a pure function; its result depends
// only on the order of the cards and wants.
package cards
