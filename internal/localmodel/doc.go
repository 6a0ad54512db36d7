// Package localmodel has what all scorers with models in this process share: rewards/preference,
// rewards/vlm and rewards/ocr/ppocr.
//
// A scorer's work with its model goes through four hands:
//
//  1. [Once] loads the model, however many samples ask for it at the same time
//     (once.go).
//  2. [Cache] computes what several samples need, such as the embedding of a group's
//     prompt, once, and keeps it within bounds (cache.go).
//  3. Both go on as long as one of those who wait does, whoever came first (flight.go).
//  4. [Classify] gives an error of the model its class among those of package rewards
//     (errors.go).
package localmodel
