// Package tesseract reads text from pictures with Tesseract, for package ocr.
//
// The life of a Reader: New checks the configuration. Warm (or the first ReadText) starts the
// slots. Each ReadText passes the RGB bytes of one frame to a free slot. The slot converts the
// frame to grey and lets Tesseract find dark text on a lighter background. If the first pass is not
// confident, a second pass reads the negative. Close ends the slots.
//
// With the build tag "tesseract" (and cgo), a slot is a child process that links libtesseract
// through gosseract. Tesseract can crash, hang and leak, and cannot be cancelled, so it never runs
// in the main process unless the isolation is "inline". Without the build tag, a slot is a
// permission to start the tesseract program from PATH, once for each pass. Both variants return the
// same lines with the same version of Tesseract; the program takes about 0.1 s longer for each
// pass, because it loads its model each time.
package tesseract
