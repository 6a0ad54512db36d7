// Package fatbin makes libraries of CUDA smaller: it zeroes the machine code that their fat
// binary holds for other architectures than one, after which they compress to a fraction.
//
// Section .nv_fatbin of such a library is a row of containers (magic 0xBA55ED50), each with one
// entry for every architecture that its kernels were compiled for. The driver picks one entry of
// a container by its header and reads no other, so that headers stay and only what is behind
// them is zeroed: sizes and offsets do not change. A library treated so runs on cards of that
// architecture alone, and where PTX is in it on later ones.
//
// The form is not documented by its maker; what is read here is checked, and a library that holds
// anything unknown is left as it is.
package fatbin
