// Package cards finds the NVIDIA GPUs that this process may use and assigns models to them.
//
// [Find] lists the cards as CUDA numbers them for this process: those that
// CUDA_VISIBLE_DEVICES names, in its order, else all. Instances of a card that is divided by
// MIG are cards of their own. What a card is comes from nvidia-smi; where that program is
// missing, from the driver's files, else only what CUDA_VISIBLE_DEVICES says is known. Nothing
// of CUDA is loaded: a card that is sick can hang whoever asks it, so a child is asked, which
// is killed when its time is up.
//
// [Make] is the book of devices: given cards and wants it says who has which card and how
// much memory of it, or lists every want that does not fit. It is a pure function, and its
// answer depends on the order of cards and wants only.
package cards
