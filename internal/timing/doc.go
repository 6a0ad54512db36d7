// Package timing carries what a sample's way through this process took, from the places that
// know to the one that tells.
//
// The life of it: a worker puts Stages into the context under which it scores a sample;
// whatever the sample passes (the decoder of pictures, a device's queue) adds its time
// there with Spent; when the result is decided, the worker reads all of them and puts
// them beside it. Where nobody has put Stages, Spent does nothing.
package timing
